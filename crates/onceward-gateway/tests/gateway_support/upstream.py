"""An upstream that does what the header `x-do` (JSON) says, and remembers what it was asked.

`mod.rs` describes the words. Without `x-do` it answers 201 `receipt N`. It ends with its standard input.
"""

import json
import os
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

LOCK = threading.Lock()
SEEN = []
GATES = {}


def gate(name):
    with LOCK:
        return GATES.setdefault(name, threading.Event())


def pattern(size):
    return bytes(index * 31 % 251 for index in range(251)) * (size // 251 + 1)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Seconds without a request after which a connection is closed.
    timeout = float(sys.argv[1]) if len(sys.argv) > 1 else None
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def send_plain(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def pieces(self):
        """The body of the request, as it comes; gives the trailers at the end."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            trailers = []
            while (line := self.rfile.readline().strip()):
                name, value = line.decode("latin-1").split(":", 1)
                trailers.append([name.lower(), value.strip()])
            self.trailers = trailers
        elif size := int(self.headers.get("Content-Length", 0)):
            yield self.rfile.read(size)

    def control(self):
        if self.path == "/count":
            with LOCK:
                by = lambda name: {
                    value: sum(1 for seen in SEEN if seen[name] == value)
                    for value in {seen[name] for seen in SEEN} - {None}
                }
                self.send_plain({"total": len(SEEN), "by_key": by("key"), "by_path": by("path")})
        elif self.path == "/seen":
            with LOCK:
                self.send_plain(SEEN)
        elif self.path.startswith("/open/"):
            gate(unquote(self.path[6:])).set()
            self.send_plain("open")
        else:
            return False
        return True

    def answer(self):
        if self.control():
            return
        self.trailers = []
        query = parse_qs(urlsplit(self.path).query).get("do", ["{}"])
        do = json.loads(self.headers.get("x-do", query[0]))
        if "early" in do:
            return self.refuse_early(do)
        if "stream" in do:
            return self.stream_back()
        try:
            body = b"".join(self.pieces())
        except (ValueError, OSError):
            self.close_connection = True
            return
        with LOCK:
            SEEN.append({
                "method": self.command,
                "path": self.path,
                "key": self.headers.get("Idempotency-Key"),
                "headers": [[name.lower(), value] for name, value in self.headers.items()],
                "trailers": self.trailers,
                "size": len(body),
                "body": body[:4096].decode("latin-1"),
            })
            number = len(SEEN)
        if "gate" in do:
            gate(do["gate"]).wait(60)
        time.sleep(do.get("delay", 0))
        if do.get("hang_up"):
            return self.hang_up()
        if do.get("echo"):
            with LOCK:
                reply = json.dumps(SEEN[number - 1]).encode()
        elif "size" in do:
            reply = pattern(do["size"])[: do["size"]]
        else:
            reply = do.get("body", "receipt %d" % number).encode("latin-1")
        reply += b" " * do.get("pad", 0)
        self.reply(do, reply)

    def reply(self, do, body):
        status, framing = do.get("status", 201), do.get("framing", "length")
        self.send_response(status)
        for name, value in do.get("headers", []):
            self.send_header(name, value)
        bare = status in (204, 304) or self.command == "HEAD"
        if framing == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
            if "trailers" in do:
                self.send_header("Trailer", ", ".join(name for name, _ in do["trailers"]))
        elif framing == "close":
            self.send_header("Connection", "close")
            self.close_connection = True
        elif not bare:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if bare:
            return
        if "cut" in do:
            self.write_piece(body[: do["cut"]], framing)
            return self.hang_up()
        half = len(body) // 2 if "pause" in do else 0
        for index, piece in enumerate([body[:half], body[half:]]):
            if index and half:
                time.sleep(do["pause"])
            self.write_piece(piece, framing)
        if framing == "chunked":
            trailers = "".join("%s: %s\r\n" % (name, value) for name, value in do.get("trailers", []))
            self.wfile.write(b"0\r\n" + trailers.encode("latin-1") + b"\r\n")

    def write_piece(self, piece, framing):
        if piece and framing == "chunked":
            piece = b"%x\r\n%b\r\n" % (len(piece), piece)
        self.wfile.write(piece)
        self.wfile.flush()

    def refuse_early(self, do):
        """Answers without reading the body."""
        self.close_connection = True
        self.send_response(do["early"])
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def stream_back(self):
        """Every piece of the request goes back at once."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in self.pieces():
            self.write_piece(piece, "chunked")
        self.wfile.write(b"0\r\n\r\n")

    def hang_up(self):
        self.close_connection = True
        self.wfile.flush()
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer


class Server(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


def end_with_standard_input():
    sys.stdin.read()
    os._exit(0)


server = Server(("127.0.0.1", int(os.environ.get("PORT", "0"))), Handler)
threading.Thread(target=end_with_standard_input, daemon=True).start()
print(server.server_port, flush=True)
server.serve_forever()
