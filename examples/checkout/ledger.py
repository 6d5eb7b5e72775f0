"""The ledger: compares the orders of the shop with the entries of billing, and fails if they differ.

    SHOP=postgres://… BILLING=postgres://… python ledger.py
"""

import os
import sys

import psycopg


def rows(database, query):
    with psycopg.connect(os.environ[database]) as db:
        return db.execute(query).fetchall()


def mistakes(orders, entries):
    """What is wrong, as sentences; nothing if every order has what it must have, once and in order."""
    billed = {number: [] for number in orders}
    for number, kind, pieces in entries:
        if number in orders:
            billed[number].append((kind, pieces))
        else:
            yield f"order {number} does not exist, and has: {kind} of {pieces}"
    for number, (state, pieces) in orders.items():
        due = [("invoice", pieces)]
        if state == "cancelled":
            due.append(("credit note", pieces))
        if billed[number] != due:
            yield f"order {number} is {state}, must have {text(due)}, and has {text(billed[number])}"


def text(entries):
    return ", then ".join(f"{kind} of {pieces}" for kind, pieces in entries) or "nothing"


def main():
    found = rows("SHOP", "SELECT number, state, pieces FROM orders ORDER BY number")
    orders = {number: (state, pieces) for number, state, pieces in found}
    entries = rows("BILLING", "SELECT order_number, kind, pieces FROM entry ORDER BY id")
    [(repeated,)] = rows("BILLING", "SELECT count(*) FROM repeated")
    cancelled = sum(state == "cancelled" for state, _ in orders.values())
    print(f"orders        {len(orders)}, of which {cancelled} were cancelled")
    for kind in "invoice", "credit note":
        print(f"{kind + 's':<13} {sum(entry[1] == kind for entry in entries)}")
    print(f"repeats       {repeated}, which changed nothing")
    wrong = list(mistakes(orders, entries))
    for mistake in wrong:
        print(f"WRONG: {mistake}")
    print("the ledger is wrong" if wrong else "the ledger is right")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
