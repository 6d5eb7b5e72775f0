"""The worst hour of a shop: clients lose answers, lamps are sold out, relays and billing are killed with -9.

    SHOP=postgres://… BILLING=postgres://… SHOP_OWNER=postgres://… python run.py

It starts shop, billing and two relays, ends them again, and ends as ledger.py does. With a number behind it, there are so
many orders.
"""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
DEADLINE = time.monotonic() + 100
# What services and relays complain of while they are killed; it is shown if the run fails.
COMPLAINTS = tempfile.TemporaryFile("w+")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


SHOP_PORT, BILLING_PORT = free_port(), free_port()
running = {}


def start(name, *command):
    running[name] = subprocess.Popen(command, stderr=COMPLAINTS)


def start_service(name, port, *arguments):
    start(name, sys.executable, "-B", str(HERE / f"{name}.py"), str(port), *arguments)
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            wait(f"{name} does not start")


def start_named(name, relay):
    if name == "billing":
        # Of its answers every seventh is lost, after its commit.
        start_service(name, BILLING_PORT, "7")
    else:
        start(name, *relay)


def kill(name):
    print(f"kill -9 {name}", flush=True)
    running[name].send_signal(signal.SIGKILL)
    running.pop(name).wait()


def wait(what, seconds=0.05):
    if time.monotonic() > DEADLINE:
        sys.exit(f"{what} in time")
    time.sleep(seconds)


def ask(method, number, order=None, loses_answer=False):
    """What the shop answers; a client that loses its answer sends the same again."""
    connection = http.client.HTTPConnection("127.0.0.1", SHOP_PORT, timeout=30)
    connection.request(method, f"/orders/{number}", json.dumps(order) if order else None)
    if loses_answer:
        connection.close()
        return ask(method, number, order)
    return connection.getresponse().status


def check_out(number):
    """One client. Gives whether it was told that its order is placed."""
    # Every seventh wants a lamp, of which there are three.
    is_lamp = number % 7 == 0
    order = {"product": "lamp" if is_lamp else "book", "pieces": 1 if is_lamp else 1 + number % 2}
    status = ask("PUT", number, order, loses_answer=number % 5 == 0)
    if status == 409:
        return False
    if status not in (200, 201):
        sys.exit(f"order {number}: the shop answered {status}")
    if number % 3 == 0 and not is_lamp:
        ask("DELETE", number, loses_answer=number % 2 == 0)
    return True


def sink():
    """What the store knows of the sink billing; `None` before the first relay is there."""
    command = ["onceward", "messages", "sinks", "--json", "--store", os.environ["SHOP_OWNER"]]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return next(iter(json.loads(told)["sinks"]), None)


def both_relays_deliver():
    known = sink()
    return known is not None and len(known["relays"]) == 2


def is_delivered():
    known = sink()
    return not any(known[what] for what in ("lag", "waiting", "held", "dead"))


def storm(count, relay):
    start_service("shop", SHOP_PORT)
    for name in "billing", "relay 1", "relay 2":
        start_named(name, relay)
    while not both_relays_deliver():
        wait("the relays do not start", 0.3)
    with ThreadPoolExecutor(4) as clients:
        placed = [clients.submit(check_out, number) for number in range(1001, 1001 + count)]
        # While they order: what dies comes back, and nobody waits for it.
        for step, name in enumerate(("relay 1", "billing", "relay 2"), start=1):
            while sum(one.done() for one in placed) < count * step // 5:
                wait("the clients are not served")
            kill(name)
            time.sleep(0.3)
            start_named(name, relay)
    accepted = sum(one.result() for one in placed)
    print(f"{accepted} checkouts were accepted, {count - accepted} rolled back", flush=True)
    while not is_delivered():
        wait("not everything is delivered", 0.3)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "onceward.toml"
        config.write_text((HERE / "onceward.toml").read_text().replace("3002", str(BILLING_PORT)))
        try:
            storm(count, ("onceward", "relay", "--config", str(config), "--store", os.environ["SHOP_OWNER"]))
        except BaseException:
            COMPLAINTS.seek(0)
            shutil.copyfileobj(COMPLAINTS, sys.stderr)
            raise
        finally:
            for process in running.values():
                process.terminate()
                process.wait()
    os.execv(sys.executable, [sys.executable, "-B", str(HERE / "ledger.py")])


if __name__ == "__main__":
    main()
