"""What docs/messages.md says of `onceward.first_time`, asked by the consumer of examples/checkout."""

import threading
import time

import psycopg

import billing


def receive(message_id, order, topic="order.placed"):
    return billing.receive(message_id, topic, {"order": order, "pieces": 1})


def fails(error, statement, *arguments):
    try:
        with psycopg.connect(billing.DATABASE) as db:
            db.execute(statement, arguments)
    except error as found:
        return found
    raise SystemExit(f"it did not fail: {statement}")


# Once.
assert receive("one", 1) is True
assert receive("one", 1) is False

# What was rolled back with its effect is new.
try:
    receive("two", 2, topic="order.unknown")
    raise SystemExit("there is no such topic")
except KeyError:
    pass
assert receive("two", 2) is True

# Of two deliveries at once the second one waits: it is new if the first one rolls back, and a repeat if it commits.
for commits in (False, True):
    answers = []
    message_id = f"both {commits}"
    with psycopg.connect(billing.DATABASE) as first:
        assert first.execute(billing.FIRST_TIME, (message_id,)).fetchone() == (True,)
        second = threading.Thread(target=lambda: answers.append(receive(message_id, 3)))
        second.start()
        second.join(0.3)
        assert answers == [], "it waits"
        first.commit() if commits else first.rollback()
    second.join()
    assert answers == [not commits], answers

# Each consumer has receipts of its own.
with psycopg.connect(billing.DATABASE) as db:
    assert db.execute("SELECT onceward.first_time('mail', 'one')").fetchone() == (True,)

# An id is new again after its retention.
with psycopg.connect(billing.DATABASE) as db:
    short = "SELECT onceward.first_time('billing', 'short', interval '100 milliseconds')"
    assert db.execute(short).fetchone() == (True,)
time.sleep(0.2)
assert receive("short", 4) is True

# What is wrong is said, and the inbox is nobody's to read.
none = fails(psycopg.Error, "SELECT onceward.first_time('billing', %s)", None)
assert none.sqlstate == "OW002", none
fails(psycopg.errors.InsufficientPrivilege, "SELECT * FROM onceward.inbox")

print("everything is as it is promised")
