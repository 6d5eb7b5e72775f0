"""A payments service with psycopg and nothing else: charge and record in one commit.

    DATABASE_URL=postgres://shop:shop@127.0.0.1:5432/shop PORT=3000 python service.py
"""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg

DATABASE = os.environ["DATABASE_URL"]


# snippet: begin
def charge(execution, cents):
    # Commits at the end of the block, and rolls everything back if anything in it raises.
    with psycopg.connect(DATABASE) as db:
        insert = "INSERT INTO payment (cents, execution) VALUES (%s, %s) RETURNING id"
        (number,) = db.execute(insert, (cents, execution)).fetchone()
        status, headers = 201, [["content-type", "application/json"]]
        body = json.dumps({"id": number, "cents": cents}).encode()
        # The record of the operation ends with this answer, in the same commit as the payment. If
        # another execution has taken over meanwhile, this raises SQLSTATE OW001.
        db.execute(
            "SELECT onceward.complete(%s, %s, %s::jsonb, %s)",
            (execution, status, json.dumps(headers), body),
        )
    return status, headers, body
# snippet: end


class Payments(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        execution = self.headers.get("onceward-execution")
        if self.path != "/payments" or execution is None:
            return self.answer(404, [], b"payments are made through the gateway\n")
        if request["cents"] <= 0:
            # Nothing was done: the gateway keeps this answer by its status.
            return self.answer(422, [], b"a payment is at least one cent\n")
        try:
            answer = charge(execution, request["cents"])
        except psycopg.Error:
            # Nothing was committed: the gateway lets a retry run.
            answer = 500, [], b"try again\n"
        self.answer(*answer)

    def answer(self, status, headers, body):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Payments).serve_forever()
