"""redis-py, which waits for each answer."""

import redis
from talk import *


def error(call, *words):
    try:
        call(*words)
    except redis.exceptions.RedisError as raised:
        return str(raised).strip()
    return None


client = redis.Redis(port=OPEN, **OPTIONS)
call = client.execute_command
heard = {
    "ping": "PONG" if client.ping() else None,
    "cell": call(*CELL),
    "cell_refused": [call(*REFUSED), call(*REFUSED)][1],
    "crab": call(*CRAB),
    "gcra": call(*GCRA),
    "check": checked(call(*CHECK)),
    "check_refused": call(*CHECK_REFUSED)[0],
}
pipeline = client.pipeline(transaction=False)
for _ in range(100):
    pipeline.execute_command(*PIPELINE)
heard["pipeline"] = [answer[2] for answer in pipeline.execute()]
# As it comes, a pipeline is a transaction.
transaction = client.pipeline()
for _ in range(3):
    transaction.execute_command(*TRANSACTION)
heard["transaction"] = [answer[2] for answer in transaction.execute()]

before = client.client_id()
heard["unknown"] = error(call, *UNKNOWN)
heard["no_limit"] = error(call, *NO_LIMIT)
heard["same_connection"] = client.client_id() == before
heard["proto"] = proto(call("HELLO"))

knows = redis.Redis(port=LOCKED, password=PASSWORD, **OPTIONS)
heard["password"] = knows.execute_command(*CELL)
guesses = redis.Redis(port=LOCKED, password="open barley", **OPTIONS)
heard["wrong_password"] = "WRONGPASS" if "invalid username-password pair" in error(guesses.ping) else None
stranger = redis.Redis(port=LOCKED, **OPTIONS)
heard["no_password"] = "NOAUTH" if error(stranger.ping) else None

wait_for_restart()
heard["restarted"] = call(*CELL)
finish(heard)
