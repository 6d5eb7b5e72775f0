"""The ledger: whether the job of each slot that is over ran once, and not before its time; fails if not.

    python ledger.py schedule.db runs.db EVERY
"""

import sqlite3
import sys
import time
from collections import Counter


def mistakes(every, first, last, runs):
    """What is wrong, as sentences; nothing if every slot ran once and in its time."""
    count = Counter(slot for slot, _ in runs)
    for slot in range(first, last + 1, every):
        if count[slot] != 1:
            yield f"the job of slot {slot} ran {count[slot]} times"
    for slot, ran_at in runs:
        if ran_at < slot:
            yield f"the job of slot {slot} ran {slot - ran_at} ms too soon"
        if slot not in range(first, last + 1, every):
            yield f"slot {slot} was never scheduled, and its job ran"


def main():
    schedule, worker = (sqlite3.connect(file, timeout=60) for file in sys.argv[1:3])
    every = int(sys.argv[3])
    attempts = schedule.execute("SELECT scheduler, slot, is_first FROM attempt").fetchall()
    runs = worker.execute("SELECT slot, ran_at FROM run").fetchall()
    [(repeated,)] = worker.execute("SELECT count(*) FROM repeated").fetchall()
    # What is due now may be on its way.
    now = int(time.time() * 1000) - max(every, 1000)
    slots = {slot for _, slot, _ in attempts if slot <= now}
    if not slots:
        sys.exit("no slot is over")
    runs = [(slot, ran_at) for slot, ran_at in runs if slot <= now]
    schedulers = {name for name, _, _ in attempts}
    print(f"slots         {len(slots)}, by {len(schedulers)} schedulers")
    print(f"runs          {len(runs)}")
    print(f"refused       {sum(not is_first for _, _, is_first in attempts)}, because another scheduler was first")
    print(f"repeats       {repeated}, which ran nothing")
    wrong = list(mistakes(every, min(slots), max(slots), runs))
    for mistake in wrong:
        print(f"WRONG: {mistake}")
    print("the ledger is wrong" if wrong else "the ledger is right")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
