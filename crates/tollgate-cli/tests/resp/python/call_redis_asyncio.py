"""redis-py on asyncio."""

import asyncio

import redis.asyncio as redis
from redis.exceptions import RedisError
from talk import *


async def error(call, *words):
    try:
        await call(*words)
    except RedisError as raised:
        return str(raised).strip()
    return None


async def main():
    client = redis.Redis(port=OPEN, **OPTIONS)
    call = client.execute_command
    heard = {
        "ping": "PONG" if await client.ping() else None,
        "cell": await call(*CELL),
        "cell_refused": [await call(*REFUSED), await call(*REFUSED)][1],
        "crab": await call(*CRAB),
        "gcra": await call(*GCRA),
        "check": checked(await call(*CHECK)),
        "check_refused": (await call(*CHECK_REFUSED))[0],
    }
    pipeline = client.pipeline(transaction=False)
    for _ in range(100):
        pipeline.execute_command(*PIPELINE)
    heard["pipeline"] = [answer[2] for answer in await pipeline.execute()]
    # As it comes, a pipeline is a transaction.
    transaction = client.pipeline()
    for _ in range(3):
        transaction.execute_command(*TRANSACTION)
    heard["transaction"] = [answer[2] for answer in await transaction.execute()]

    before = await client.client_id()
    heard["unknown"] = await error(call, *UNKNOWN)
    heard["no_limit"] = await error(call, *NO_LIMIT)
    heard["same_connection"] = await client.client_id() == before
    heard["proto"] = proto(await call("HELLO"))

    async with redis.Redis(port=LOCKED, password=PASSWORD, **OPTIONS) as knows:
        heard["password"] = await knows.execute_command(*CELL)
    async with redis.Redis(port=LOCKED, password="open barley", **OPTIONS) as guesses:
        said = await error(guesses.ping)
        heard["wrong_password"] = "WRONGPASS" if "invalid username-password pair" in said else None
    async with redis.Redis(port=LOCKED, **OPTIONS) as stranger:
        heard["no_password"] = "NOAUTH" if await error(stranger.ping) else None

    wait_for_restart()
    heard["restarted"] = await call(*CELL)
    await client.aclose()
    finish(heard)


asyncio.run(main())
