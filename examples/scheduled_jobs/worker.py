"""A worker: runs the job of each slot once.

    python worker.py runs.db 3003

With a third argument, of so many jobs that were run one gets no answer, so that it is delivered again.
"""

import json
import sqlite3
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FILE = sys.argv[1]
LOSE_EVERY = int(sys.argv[3]) if len(sys.argv) > 3 else 0
MONTH = 30 * 86400

# What it did. There is no unique constraint, so that the ledger sees what runs twice.
TABLES = """
CREATE TABLE IF NOT EXISTS run (slot INTEGER, ran_at INTEGER);
CREATE TABLE IF NOT EXISTS repeated (message_id TEXT);
"""

# One row is changed if the message comes for the first time.
RECEIPT = """
INSERT INTO onceward_inbox (consumer, message_id, received_at, expires_at)
VALUES (?1, ?2, unixepoch() * 1000000, (unixepoch() + ?3) * 1000000)
ON CONFLICT (consumer, message_id) DO UPDATE
SET received_at = excluded.received_at, expires_at = excluded.expires_at
WHERE expires_at < excluded.received_at;
"""


def connect():
    # Without `isolation_level` a transaction is what BEGIN and COMMIT say.
    db = sqlite3.connect(FILE, timeout=60, isolation_level=None)
    db.execute("PRAGMA synchronous = FULL")
    return db


def run(message_id, job):
    """Whether the job was run now. Its receipt and its effect are one commit."""
    db = connect()
    try:
        db.execute("BEGIN IMMEDIATE")
        is_new = db.execute(RECEIPT, ("worker", message_id, MONTH)).rowcount == 1
        if is_new:
            db.execute("INSERT INTO run VALUES (?, ?)", (job["slot"], int(time.time() * 1000)))
        else:
            db.execute("INSERT INTO repeated VALUES (?)", (message_id,))
        db.execute("COMMIT")
        return is_new
    finally:
        # What was not committed is rolled back.
        db.close()


class Worker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ran = 0
    counting = threading.Lock()

    def do_POST(self):
        job = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_new = run(self.headers["idempotency-key"], job)
        if is_new and self.is_lost():
            self.close_connection = True
            return
        # Only now, after the commit. Whatever was raised above ends the connection without an answer,
        # and the relay sends the job again.
        self.send_response(204)
        self.end_headers()

    def is_lost(self):
        with Worker.counting:
            Worker.ran += 1
            return LOSE_EVERY > 0 and Worker.ran % LOSE_EVERY == 0

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    connect().executescript(TABLES)
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Worker).serve_forever()
