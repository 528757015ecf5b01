"""What is asked of each client, and how what it heard is printed.

usage: CLIENT.py PROTOCOL OPEN_PORT LOCKED_PORT PASSWORD
"""

import json
import sys

PROTOCOL, OPEN, LOCKED, PASSWORD = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

# As the client comes, unless told otherwise.
OPTIONS = {} if PROTOCOL == "default" else {"protocol": int(PROTOCOL)}

CELL = ("CL.THROTTLE", "ann", 15, 30, 60)
REFUSED = ("CL.THROTTLE", "eve", 0, 1, 86400)
CRAB = ("THROTTLE", "bob", 15, 30, 60)
GCRA = ("GCRA", "cid", 15, 30, 60)
CHECK = ("TG.CHECK", "per-user", "dan")
CHECK_REFUSED = ("TG.CHECK", "per-user", "dan", 5)
UNKNOWN = ("FLY", "away")
NO_LIMIT = ("TG.CHECK", "per-usr", "dan")
PIPELINE = ("CL.THROTTLE", "pipe", 99, 100, 8640000)
TRANSACTION = ("CL.THROTTLE", "all", 99, 100, 8640000)


def proto(hello):
    """What HELLO answers is a list of names and values, or a map of them."""
    pairs = hello if isinstance(hello, dict) else dict(zip(hello[::2], hello[1::2]))
    return pairs[b"proto"]


def checked(answer):
    """Without the id, which is another one each time."""
    assert len(answer[5]) == 16, answer
    return answer[:5]


def wait_for_restart():
    print("restart", flush=True)
    sys.stdin.readline()


def finish(heard):
    print(json.dumps(heard), flush=True)
