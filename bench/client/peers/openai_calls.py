"""openai-python: many calls by 100 tasks, and how many succeeded.

usage: openai_calls.py URL CALLS
"""

import asyncio
import json
import sys

import openai

URL, CALLS, TASKS = sys.argv[1], int(sys.argv[2]), 100


async def main():
    client = openai.AsyncOpenAI(base_url=URL + "/v1", api_key="sk-nobody", max_retries=20)
    messages = [{"role": "user", "content": "How many calls does a limit of three permit?"}]

    async def work(calls):
        succeeded = 0
        for _ in range(calls):
            try:
                await client.chat.completions.create(model="m", messages=messages, max_tokens=20)
                succeeded += 1
            except openai.OpenAIError:
                pass
        return succeeded

    shares = [CALLS // TASKS + (task < CALLS % TASKS) for task in range(TASKS)]
    print(json.dumps({"succeeded": sum(await asyncio.gather(*map(work, shares)))}))


asyncio.run(main())
