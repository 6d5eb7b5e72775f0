"""A bad night: three schedulers, two relays and a worker, of which one after the other is killed with -9.

    python run.py

It works in a directory of its own and ends as ledger.py does. With a number behind it, there are so many slots.
"""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEADLINE = time.monotonic() + 100
EVERY = 250
# What all of them complain of while they are killed; it is shown if the run fails.
COMPLAINTS = tempfile.TemporaryFile("w+")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


PORT = free_port()
running = {}


def start(name):
    command = [sys.executable, "-B", str(HERE / f"{name.split()[0]}.py")]
    if name == "worker":
        # Of its answers every fifth is lost, after its commit.
        command += ["runs.db", str(PORT), "5"]
    elif name.startswith("relay"):
        command = ["onceward", "relay"]
    else:
        command += ["schedule.db", name, str(EVERY)]
    running[name] = subprocess.Popen(command, stderr=COMPLAINTS)


def kill(name):
    print(f"kill -9 {name}", flush=True)
    running[name].send_signal(signal.SIGKILL)
    running.pop(name).wait()


def wait(what, seconds=0.05):
    if time.monotonic() > DEADLINE:
        sys.exit(f"{what} in time")
    time.sleep(seconds)


def sink():
    """What the store knows of the sink worker; `None` before the first relay is there."""
    command = ["onceward", "messages", "sinks", "--json", "--store", "sqlite://schedule.db"]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return next(iter(json.loads(told)["sinks"]), None)


def both_relays_deliver():
    known = sink()
    return known is not None and len(known["relays"]) == 2


def is_delivered():
    known = sink()
    return not any(known[what] for what in ("lag", "waiting", "scheduled", "held", "dead"))


def runs():
    worker = sqlite3.connect("runs.db", timeout=60)
    [(count,)] = worker.execute("SELECT count(*) FROM run").fetchall()
    worker.close()
    return count


def prepare():
    config = (HERE / "onceward.toml").read_text().replace("3003", str(PORT))
    Path("onceward.toml").write_text(config)
    for name in "schedule", "runs":
        migrate = ["onceward", "migrate", "--store", f"sqlite://{name}.db"]
        subprocess.run(migrate, check=True, stdout=subprocess.DEVNULL)


def start_worker():
    start("worker")
    while True:
        try:
            return socket.create_connection(("127.0.0.1", PORT)).close()
        except OSError:
            wait("the worker does not start")


def night(count):
    start_worker()
    for name in "relay 1", "relay 2":
        start(name)
    while not both_relays_deliver():
        wait("the relays do not start", 0.3)
    for name in "scheduler 1", "scheduler 2", "scheduler 3":
        start(name)
    for step, name in enumerate(("relay 1", "scheduler 1", "worker", "relay 2"), start=1):
        while runs() < count * step // 5:
            wait("the jobs do not run")
        kill(name)
        time.sleep(0.3)
        start(name)
    while runs() < count:
        wait("the jobs do not run")
    for name in [name for name in running if name.startswith("scheduler")]:
        kill(name)
    while not is_delivered():
        wait("not everything is delivered", 0.3)
    # What was just delivered is over for the ledger, too.
    time.sleep(1 + EVERY / 1000)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        prepare()
        try:
            night(count)
        except BaseException:
            COMPLAINTS.seek(0)
            shutil.copyfileobj(COMPLAINTS, sys.stderr)
            raise
        finally:
            for process in running.values():
                process.terminate()
                process.wait()
        ledger = [sys.executable, "-B", str(HERE / "ledger.py"), "schedule.db", "runs.db", str(EVERY)]
        status = subprocess.run(ledger).returncode
        os.chdir("/")
    sys.exit(status)


if __name__ == "__main__":
    main()
