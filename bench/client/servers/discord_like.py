"""A server with the limits of Discord's HTTP API.

- Each route has a bucket, named by `X-RateLimit-Bucket`, of which each channel has its own. Its window begins with the
  first request. `X-RateLimit-Reset` is a date with milliseconds, `X-RateLimit-Reset-After` the same as seconds.
- A global limit counts requests of all routes in windows of one second. Its refusals have `X-RateLimit-Global` and
  `X-RateLimit-Scope: global`, `Retry-After` in whole seconds and `retry_after` with a fraction in the body.

usage: discord_like.py LIMIT SECONDS GLOBAL
"""

import hashlib
import math
import sys

from http1 import Response, run

LIMIT, SECONDS, GLOBAL = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])

buckets = {}
everything = {"start": -math.inf, "used": 0}


def refusal(headers, wait, scope, bucket=""):
    headers = {**headers, "Retry-After": math.ceil(wait), "X-RateLimit-Scope": scope, "Via": "1.1 edge"}
    if scope == "global":
        headers["X-RateLimit-Global"] = "true"
    body = {"message": "You are being rate limited.", "retry_after": round(wait, 3), "global": scope == "global"}
    return Response(429, headers, body, bucket)


def answer(request, now):
    parts = request.path.split("?")[0].strip("/").split("/")
    major = next((part for part in parts if part.isdigit()), "")
    route = request.method + " " + "/".join("*" if part.isdigit() else part for part in parts)
    if now >= everything["start"] + 1.0:
        everything.update(start=now, used=0)
    if everything["used"] >= GLOBAL:
        return refusal({}, everything["start"] + 1.0 - now, "global")
    everything["used"] += 1
    bucket = buckets.setdefault((route, major), {"start": -math.inf, "used": 0})
    if now >= bucket["start"] + SECONDS:
        bucket.update(start=now, used=0)
    is_over = bucket["used"] >= LIMIT
    bucket["used"] += not is_over
    reset = bucket["start"] + SECONDS
    headers = {
        "X-RateLimit-Limit": LIMIT,
        "X-RateLimit-Remaining": LIMIT - bucket["used"],
        "X-RateLimit-Reset": f"{reset:.3f}",
        "X-RateLimit-Reset-After": f"{reset - now:.3f}",
        "X-RateLimit-Bucket": hashlib.md5(route.encode()).hexdigest(),
    }
    if is_over:
        return refusal(headers, reset - now, "user", f"{route} {major}")
    return Response(200, headers, {"id": "1"}, f"{route} {major}")


run(answer)
