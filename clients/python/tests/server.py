"""A real Tollgate server for the tests: the binary that `TOLLGATE_BINARY` names, on free ports."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

POLICY = """
listen: {gateway: off, api: "127.0.0.1:0", rls: off, resp: off}
limits:
  - {name: search, endpoint: /search, by: user, bucket: 2/hour}
  - {name: tokens, endpoint: /chat, by: user, bucket: 100/hour}
  - {name: exports, endpoint: /exports, by: user, slots: 1}
  - {name: reports, endpoint: /reports, by: user, rate: 1/minute, queue: {length: 5, wait: 10m}}
  - {name: mails, endpoint: /mails, by: user, rate: 50/second, queue: {length: 5, wait: 5s}}
"""
START_TIMEOUT = 30.0


class Server:
    def __init__(self, policy: str = POLICY) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        (folder / "policy.yaml").write_text(policy)
        ready = folder / "ready.json"
        command = [os.environ["TOLLGATE_BINARY"], "serve", "--config", "policy.yaml", "--ready-file", "ready.json"]
        self._log = open(folder / "log", "w+")
        self._process = subprocess.Popen(command, cwd=folder, stdout=self._log, stderr=self._log)
        deadline = time.monotonic() + START_TIMEOUT
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._log.seek(0)
                raise RuntimeError(f"the server did not start: {self._log.read()}")
            time.sleep(0.02)
        self.url = "http://" + json.loads(ready.read_text())["api"]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
        self._folder.cleanup()
