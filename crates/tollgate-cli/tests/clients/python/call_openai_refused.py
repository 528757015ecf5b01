"""openai without retries: what its exception says of a refusal."""

import json

import openai
import report

client = openai.OpenAI(base_url=report.url() + "/v1", api_key="sk-nobody", max_retries=0)
try:
    client.models.list()
except openai.RateLimitError as error:
    print(json.dumps({"code": error.code, "type": error.type, "id": error.request_id, "body": error.body}))
