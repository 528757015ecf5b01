"""A server with the limits of GitHub's REST API, in small.

- The primary limit is a fixed window that begins with the first request after the last one. `x-ratelimit-reset` is a
  date in whole seconds. A request above the limit gets 403 with `x-ratelimit-remaining: 0` and no `Retry-After`.
- A secondary limit refuses bursts: more than a share of the primary limit within a sixtieth of its window, or more
  than 100 requests at a time, get 403 with `Retry-After`.

usage: github_like.py LIMIT SECONDS [up|down]
"""

import math
import sys
from collections import deque

from http1 import Response, run

LIMIT, SECONDS = int(sys.argv[1]), float(sys.argv[2])
ROUND = math.ceil if "up" in sys.argv else math.floor
# GitHub: 900 points a minute beside 5,000 requests an hour.
BURST, BURST_SECONDS = max(1, LIMIT * 900 // 5_000), SECONDS / 60

window = {"start": -math.inf, "used": 0}
recent = deque()


def answer(request, now):
    if now >= window["start"] + SECONDS:
        window.update(start=now, used=0)
    while recent and recent[0] <= now - BURST_SECONDS:
        recent.popleft()
    is_burst = len(recent) >= BURST
    is_over = window["used"] >= LIMIT
    if not (is_burst or is_over):
        window["used"] += 1
        recent.append(now)
    headers = {
        "x-ratelimit-limit": LIMIT,
        "x-ratelimit-remaining": LIMIT - window["used"],
        "x-ratelimit-used": window["used"],
        "x-ratelimit-reset": ROUND(window["start"] + SECONDS),
        "x-ratelimit-resource": "core",
    }
    if is_over:
        return Response(403, headers, {"message": "API rate limit exceeded for installation ID 1."})
    if is_burst:
        headers["Retry-After"] = 1
        return Response(403, headers, {"message": "You have exceeded a secondary rate limit."})
    return Response(200, headers, {"zen": "Keep it logically awesome."})


run(answer)
