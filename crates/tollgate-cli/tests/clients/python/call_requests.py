"""requests with urllib3's `Retry` in its adapter, as its documentation shows."""

import report
import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

session = requests.Session()
session.trust_env = False
session.mount("http://", HTTPAdapter(max_retries=Retry(total=5)))
report.calls(lambda: session.get(report.url()).raise_for_status())
