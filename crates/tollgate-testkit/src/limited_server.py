"""A server with limits, as GitHub, Discord or OpenAI words them. Its counts are at /stats.

Usage: limited_server.py DIALECT [CERTIFICATE KEY]; prints its port.
"""
import json
import math
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DIALECT = sys.argv[1]
LOCK = threading.Lock()
COUNTS = {"calls": 0, "refused": 0, "early": 0, "first": 0.0, "last": 0.0}
WINDOWS = {}
BUCKET = {"level": 100.0, "at": time.monotonic()}
TOLD = [0.0]
GO = threading.Event()


def window(key, units, seconds):
    """Counts in windows that are aligned to the clock. Returns allowed, remaining and the end of the window."""
    now = time.time()
    start = math.floor(now / seconds) * seconds
    used, since = WINDOWS.get(key, (0, start))
    if since != start:
        used, since = 0, start
    allowed = used < units
    WINDOWS[key] = (used + allowed, since)
    return allowed, units - used - allowed, since + seconds


def github():
    allowed, left, end = window("core", 1000, 2)
    headers = {"X-RateLimit-Limit": 1000, "X-RateLimit-Remaining": left, "X-RateLimit-Reset": int(end), "X-RateLimit-Resource": "core"}
    if not allowed:
        headers["Retry-After"] = max(1, math.ceil(end - time.time()))
    return allowed, 403, headers


def discord():
    allowed, left, end = window("abcd", 300, 1)
    after = end - time.time()
    headers = {"X-RateLimit-Limit": 300, "X-RateLimit-Remaining": left, "X-RateLimit-Reset": f"{end:.3f}", "X-RateLimit-Reset-After": f"{after + 0.0005:.3f}", "X-RateLimit-Bucket": "abcd"}
    if not allowed:
        headers.update({"Retry-After": max(1, math.ceil(after)), "X-RateLimit-Scope": "user"})
    return allowed, 429, headers


def openai():
    rate, capacity, now = 400.0, 100.0, time.monotonic()
    BUCKET["level"] = min(capacity, BUCKET["level"] + (now - BUCKET["at"]) * rate)
    BUCKET["at"] = now
    allowed = BUCKET["level"] >= 1
    BUCKET["level"] -= allowed
    full = (capacity - BUCKET["level"]) / rate
    headers = {"x-ratelimit-limit-requests": 100, "x-ratelimit-remaining-requests": int(BUCKET["level"]), "x-ratelimit-reset-requests": f"{math.ceil(full * 1000)}ms"}
    if not allowed:
        wait = (1 - BUCKET["level"]) / rate
        headers.update({"retry-after": 1, "retry-after-ms": math.ceil(wait * 1000)})
    return allowed, 429, headers


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        if self.path == "/stats":
            return self.answer(200, {}, json.dumps(COUNTS))
        if self.path == "/echo":
            return self.answer(200, {"X-Host": self.headers.get("Host", ""), "X-Auth": self.headers.get("Authorization", "")}, "echo")
        if self.path == "/never":
            return self.answer(429, {"Retry-After": 1000000}, "no")
        if self.path == "/stream":
            return self.stream()
        if self.path == "/go":
            GO.set()
            return self.answer(200, {}, "going")
        if self.path == "/slow":
            time.sleep(5)
            return self.answer(200, {}, "late")
        with LOCK:
            allowed, refusal, headers = {"github": github, "discord": discord, "openai": openai}[DIALECT]()
            now = time.monotonic()
            COUNTS["calls"] += 1
            COUNTS["refused"] += not allowed
            COUNTS["first"] = COUNTS["first"] or now
            COUNTS["last"] = now
            # A call may be under way when a refusal is sent; a quarter of a second is far more than it takes here.
            COUNTS["early"] += any(at + 0.25 < now < until for at, until in TOLD[1:])
            if not allowed:
                TOLD.append((now, now + float(headers.get("Retry-After") or headers["retry-after"])))
                del TOLD[1:-50]
        self.answer(200 if allowed else refusal, headers, "ok" if allowed else "limited")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.answer(200, {}, body.decode())

    def stream(self):
        """Writes the second part of a body after a request for /go."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"5\r\nfirst\r\n")
        self.wfile.flush()
        GO.wait(60)
        self.wfile.write(b"6\r\nsecond\r\n0\r\n\r\n")

    def answer(self, status, headers, text):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


server = Server(("127.0.0.1", 0), Handler)
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
