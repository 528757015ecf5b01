"""urllib3 with its `Retry`: obeys `Retry-After` on 429 by itself."""

import report
import urllib3

pool = urllib3.PoolManager(retries=urllib3.Retry(total=5))


def call():
    answer = pool.request("GET", report.url())
    assert answer.status == 200, answer.status


report.calls(call)
