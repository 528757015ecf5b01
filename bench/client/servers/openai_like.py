"""A server with the limits of OpenAI's API: requests and tokens, each a bucket that refills.

`x-ratelimit-reset-requests` and `-tokens` are the times until the buckets are full, as durations such as `20ms`, `1.2s`
and `6m0s`. A refusal is 429 with `retry-after` and `retry-after-ms`. The tokens of a request are a quarter of the bytes
of its messages plus `max_tokens`.

usage: openai_like.py REQUESTS TOKENS SECONDS      (full buckets, and the time in which they refill)
"""

import json
import math
import sys

from http1 import Response, run

REQUESTS, TOKENS, SECONDS = float(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])


class Bucket:
    def __init__(self, limit):
        self.limit, self.level, self.at = limit, limit, 0.0

    def refill(self, now):
        passed = now - self.at if self.at else 0.0
        self.level, self.at = min(self.limit, self.level + self.limit / SECONDS * passed), now

    def wait(self, cost):
        return max(0.0, cost - self.level) * SECONDS / self.limit

    def headers(self, name):
        reset = (self.limit - self.level) * SECONDS / self.limit
        return {
            f"x-ratelimit-limit-{name}": int(self.limit),
            f"x-ratelimit-remaining-{name}": int(self.level),
            f"x-ratelimit-reset-{name}": duration(reset),
        }


def duration(seconds):
    """Writes a duration as Go does."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    if seconds < 60:
        return f"{round(seconds, 3):g}s"
    minutes, seconds = divmod(seconds, 60)
    return f"{int(minutes)}m{round(seconds)}s"


requests, tokens = Bucket(REQUESTS), Bucket(TOKENS)


def tokens_of(request):
    try:
        body = json.loads(request.body)
        return sum(len(it["content"]) for it in body["messages"]) // 4 + int(body["max_tokens"])
    except (ValueError, KeyError, TypeError):
        return 10


def answer(request, now):
    cost = tokens_of(request)
    requests.refill(now)
    tokens.refill(now)
    wait = max(requests.wait(1), tokens.wait(cost))
    if wait == 0:
        requests.level -= 1
        tokens.level -= cost
    headers = {**requests.headers("requests"), **tokens.headers("tokens"), "x-request-id": "req_1"}
    if wait > 0:
        kind = "requests" if requests.wait(1) > 0 else "tokens"
        headers |= {"Retry-After": math.ceil(wait), "retry-after-ms": math.ceil(wait * 1000)}
        error = {"message": f"Rate limit reached on {kind} per min.", "type": kind, "code": "rate_limit_exceeded"}
        return Response(429, headers, {"error": error})
    choice = {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": cost}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": int(now), "model": "m", "choices": [choice], "usage": usage}
    return Response(200, headers, body)


run(answer)
