"""boto3 in standard mode: retries what is called throttling, after `x-amz-retry-after`.

The option names the service, since services speak different protocols.
"""

import boto3
import report
from botocore.config import Config

METHODS = {"dynamodb": "list_tables", "s3": "list_buckets", "sns": "list_topics"}

client = boto3.client(
    report.option(),
    endpoint_url=report.url(),
    region_name="us-east-1",
    aws_access_key_id="nobody",
    aws_secret_access_key="nothing",
    config=Config(retries={"mode": "standard", "max_attempts": 8}),
)
report.calls(getattr(client, METHODS[report.option()]))
