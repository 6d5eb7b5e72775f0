"""The shop: an order and the message that tells of it are one commit.

    SHOP=postgres://shop:shop@127.0.0.1:5432/shop python shop.py 3001

PUT /orders/7 {"product": "book", "pieces": 2} places an order, DELETE /orders/7 cancels it.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg

DATABASE = os.environ["SHOP"]


def enqueue(db, topic, number, pieces):
    """Puts a message into the outbox; the commit of `db` sends it, and a rollback takes it back."""
    body = json.dumps({"order": number, "pieces": pieces}).encode()
    db.execute("SELECT onceward.enqueue(%s, %s, %s)", (topic, f"order-{number}", body))


def place(db, number, product, pieces):
    # A client that got no answer sends its order again. The row is written first: whoever writes it
    # first also enqueues first, so that messages of one order keep the order of its changes.
    insert = "INSERT INTO orders (number, product, pieces) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
    if db.execute(insert, (number, product, pieces)).rowcount == 0:
        return 200
    enqueue(db, "order.placed", number, pieces)
    # If there are too few pieces, this raises: neither the order nor its message were ever there.
    db.execute("UPDATE stock SET pieces = pieces - %s WHERE product = %s", (pieces, product))
    return 201


def cancel(db, number):
    update = "UPDATE orders SET state = 'cancelled' WHERE number = %s AND state = 'placed' RETURNING product, pieces"
    order = db.execute(update, (number,)).fetchone()
    if order is None:
        return 200
    product, pieces = order
    enqueue(db, "order.cancelled", number, pieces)
    db.execute("UPDATE stock SET pieces = pieces + %s WHERE product = %s", (pieces, product))
    return 200


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        order = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.change(lambda db: place(db, self.number(), order["product"], order["pieces"]))

    def do_DELETE(self):
        self.change(lambda db: cancel(db, self.number()))

    def number(self):
        return int(self.path.removeprefix("/orders/"))

    def change(self, what):
        try:
            # Commits at the end of the block, and rolls everything back if anything in it raises.
            with psycopg.connect(DATABASE) as db:
                status = what(db)
        except psycopg.errors.CheckViolation:
            status = 409
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Shop).serve_forever()
