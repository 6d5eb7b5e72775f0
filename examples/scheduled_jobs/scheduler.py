"""A scheduler: enqueues the job of each slot of time before it is due. Start as many as you like.

    python scheduler.py schedule.db NAME EVERY

EVERY is the length of a slot in milliseconds. The job of a slot has an id that is made of the slot: the outbox takes it
once, and all other schedulers are refused.
"""

import sqlite3
import sys
import time
import uuid

# Of these ids; another kind of job has another one.
REPORTS = uuid.UUID("8b4cbb43-4f86-4f27-8a7c-7f4a0c3bfb1d")
# So many slots are enqueued ahead: so long all schedulers may be dead, and no job is missed.
AHEAD = 3

# What each scheduler tried, so that the ledger can tell. Slots are in milliseconds since 1970.
ATTEMPTS = "CREATE TABLE IF NOT EXISTS attempt (scheduler TEXT, slot INTEGER, is_first INTEGER)"
ENQUEUE = "INSERT INTO onceward_message (id, topic, body, not_before) VALUES (?, ?, ?, ?)"


def connect(file):
    # Without `isolation_level` a transaction is what BEGIN and COMMIT say.
    db = sqlite3.connect(file, timeout=60, isolation_level=None)
    db.execute("PRAGMA synchronous = FULL")
    db.execute(ATTEMPTS)
    return db


def enqueue(db, scheduler, slot):
    """Whether the job of this slot was not enqueued before."""
    job = uuid.uuid5(REPORTS, str(slot))
    body = b'{"slot":%d}' % slot
    is_first = 1
    db.execute("BEGIN IMMEDIATE")
    try:
        # `not_before` is in microseconds.
        db.execute(ENQUEUE, (job.bytes, "report.due", body, slot * 1000))
    except sqlite3.IntegrityError as refused:
        if "onceward_message.id" not in str(refused):
            raise
        # Another scheduler has enqueued it. The statement has failed, and the transaction goes on.
        is_first = 0
    db.execute("INSERT INTO attempt VALUES (?, ?, ?)", (scheduler, slot, is_first))
    db.execute("COMMIT")
    return is_first == 1


def main():
    file, name, every = sys.argv[1], sys.argv[2], int(sys.argv[3])
    db = connect(file)
    # It starts with the slot after this one: this one may be over elsewhere. From then on it leaves none out,
    # also if it was paused for longer than it looks ahead.
    slot = int(time.time() * 1000) // every * every + every
    while True:
        now = int(time.time() * 1000)
        while slot <= now + AHEAD * every:
            enqueue(db, name, slot)
            slot += every
        time.sleep(every / 4000)


if __name__ == "__main__":
    main()
