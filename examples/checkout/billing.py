"""Billing: writes an invoice for each order that was placed, and a credit note if it is cancelled.

    BILLING=postgres://billing:billing@127.0.0.1:5432/billing python billing.py 3002

With a second argument, of so many deliveries that were new one gets no answer, so that it is repeated.
"""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg

DATABASE = os.environ["BILLING"]
LOSE_EVERY = int(sys.argv[2]) if len(sys.argv) > 2 else 0
KINDS = {"order.placed": "invoice", "order.cancelled": "credit note"}

FIRST_TIME = "SELECT onceward.first_time('billing', %s, interval '30 days')"


def receive(message_id, topic, event):
    """Whether the message was new. Its receipt and its effect are one commit."""
    with psycopg.connect(DATABASE) as db:
        (is_new,) = db.execute(FIRST_TIME, (message_id,)).fetchone()
        if is_new:
            insert = "INSERT INTO entry (order_number, kind, pieces) VALUES (%s, %s, %s)"
            db.execute(insert, (event["order"], KINDS[topic], event["pieces"]))
        else:
            db.execute("INSERT INTO repeated (message_id) VALUES (%s)", (message_id,))
    return is_new


class Billing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    received = 0
    counting = threading.Lock()

    def do_POST(self):
        event = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_new = receive(self.headers["idempotency-key"], self.headers["onceward-topic"], event)
        if is_new and self.is_lost():
            self.close_connection = True
            return
        # Only now, after the commit: from this answer on the relay forgets the message. Whatever was
        # raised above ends the connection without an answer, and the relay sends it again.
        self.send_response(204)
        self.end_headers()

    def is_lost(self):
        with Billing.counting:
            Billing.received += 1
            return LOSE_EVERY > 0 and Billing.received % LOSE_EVERY == 0

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Billing).serve_forever()
