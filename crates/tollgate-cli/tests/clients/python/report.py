"""Makes calls one after another and prints how they ended, as JSON.

usage: CLIENT.py URL CALLS [OPTION]
"""

import json
import sys
import time


def url():
    return sys.argv[1]


def option():
    return sys.argv[3]


def calls(call):
    """Each call either returns, or raises what its client raises."""
    ended = []
    for _ in range(int(sys.argv[2])):
        start = time.monotonic()
        try:
            call()
            error = None
        except Exception as raised:  # whatever it is, the test wants to see it
            error = f"{type(raised).__name__}: {raised}"
        ended.append({"error": error, "seconds": round(time.monotonic() - start, 3)})
    print(json.dumps({"calls": ended}))
