"""httpx, which never retries: a caller who sleeps for `Retry-After` by hand."""

import time

import httpx
import report

client = httpx.Client(trust_env=False)


def call():
    for _ in range(5):
        answer = client.get(report.url())
        if answer.status_code != 429:
            break
        time.sleep(int(answer.headers["Retry-After"]))
    answer.raise_for_status()


report.calls(call)
