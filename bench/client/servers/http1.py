"""A small HTTP/1.1 server on asyncio: enough for clients that keep connections open.

A server is a function from a request to a response. It knows nothing of Tollgate.
"""

import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass, field
from email.utils import formatdate

# The time for which requests that were on their way when a refusal was sent are not counted as early.
GRACE = 0.25


@dataclass
class Request:
    method: str
    path: str
    headers: dict
    body: bytes


@dataclass
class Response:
    status: int = 200
    headers: dict = field(default_factory=dict)
    body: object = field(default_factory=dict)
    # The bucket that the request was counted in. A refusal without one is for all of them.
    bucket: str = ""


@dataclass
class Stats:
    """What a server saw, for the report of the benchmark."""

    answered: int = 0
    refused: int = 0
    refused_known: int = 0
    early: int = 0
    first: float = 0.0
    last: float = 0.0
    # When the latest refusal of a bucket was sent, and when it permits the next request.
    stops: dict = field(default_factory=dict)

    def count(self, response, now):
        self.first = self.first or now
        self.last = now
        # A request on its way had not seen the refusal.
        stops = (self.stops.get(bucket, (now, now)) for bucket in {"", response.bucket})
        self.early += any(sent_at + GRACE < now < retry_at for sent_at, retry_at in stops)
        if response.status < 400:
            self.answered += 1
            return
        self.refused += 1
        self.refused_known += now - self.first > 1.0
        wait = float(response.headers.get("Retry-After", 0))
        if now + wait > self.stops.get(response.bucket, (now, now))[1]:
            self.stops[response.bucket] = (now, now + wait)


REASONS = {200: "OK", 403: "Forbidden", 404: "Not Found", 429: "Too Many Requests"}


async def read_request(reader):
    line = await reader.readline()
    if not line:
        return None
    method, path, _version = line.decode("latin-1").split()
    headers = {}
    while (line := await reader.readline()) not in (b"\r\n", b"\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, path, headers, body)


def encode(response):
    body = json.dumps(response.body).encode()
    lines = [f"HTTP/1.1 {response.status} {REASONS.get(response.status, 'Status')}"]
    headers = {"Date": formatdate(usegmt=True), "Content-Type": "application/json", **response.headers}
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


async def serve(answer):
    """Answers requests until the input ends. Prints the port, and the counts at the end."""
    stats = Stats()

    async def connection(reader, writer):
        try:
            while request := await read_request(reader):
                now = time.time()
                response = answer(request, now)
                stats.count(response, now)
                writer.write(encode(response))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    seconds = stats.last - stats.first
    counts = {name: count for name, count in vars(stats).items() if name != "stops"}
    print(json.dumps({**counts, "seconds": seconds}), flush=True)
    # Connections that are still open would be reported as errors.
    os._exit(0)


def run(answer):
    asyncio.run(serve(answer))
