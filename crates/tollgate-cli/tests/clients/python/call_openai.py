"""openai: reads `retry-after-ms`, then `Retry-After`; `x-should-retry` overrules its own mind."""

import openai
import report

client = openai.OpenAI(base_url=report.url() + "/v1", api_key="sk-nobody", max_retries=5)
report.calls(lambda: client.models.list())
