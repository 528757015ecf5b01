"""The part of a client that does not wait: requests, remembered refusals, the breaker, outage rules.

Both clients use it around their call, so they cannot differ in their decisions.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import httpx

from ._decision import Decision
from ._errors import ApiError, TollgateError, Unavailable
from ._outage import OutageRule

MAX_REMEMBERED = 10_000
"""The refusals that are remembered at a time."""
FAILURES_TO_OPEN = 3
"""The failed calls in a row after which the server is not called for `PROBE_INTERVAL`."""
PROBE_INTERVAL = 1.0
"""Seconds between calls while the server does not answer."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its path and body, the identity for remembered refusals, and the cost."""

    path: str
    body: Mapping[str, Any]
    cost: int

    @property
    def key(self) -> str:
        return self.path + json.dumps(self.body, sort_keys=True, separators=(",", ":"))

    @property
    def identity(self) -> str:
        """The key without the cost, which outage rules count by."""
        body = {name: value for name, value in self.body.items() if name != "cost"}
        return self.path + json.dumps(body, sort_keys=True, separators=(",", ":"))


def request_check(path: str, cost: int | None, fields: Mapping[str, Any]) -> Check:
    body = {"path": path, **{name: value for name, value in fields.items() if value is not None}}
    if cost is not None:
        body["cost"] = cost
    return Check("/v1/check", body, 1 if cost is None else cost)


def limit_check(limit: str, key: str | list[str], cost: int) -> Check:
    return Check(limit_path(limit, "check"), {"key": key, "cost": cost}, cost)


def limit_path(limit: str, operation: str) -> str:
    return f"/v1/limits/{quote(limit, safe='')}/{operation}"


class Session:
    """Remembered refusals, breaker and outage rule of one client. Safe for several threads."""

    def __init__(self, on_outage: OutageRule, remember: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._on_outage = on_outage
        self._remember = remember
        self._clock = clock
        self._lock = threading.Lock()
        self._refusals: OrderedDict[str, tuple[float, float, Decision]] = OrderedDict()
        self._failures = 0
        self._probe_at = 0.0

    def decide_without_call(self, check: Check) -> Decision | None:
        """Returns a decision that needs no call: a remembered refusal, or the outage rule while the breaker is open."""
        now = self._clock()
        with self._lock:
            remembered = self._refusals.get(check.key)
            if remembered is not None:
                until, retry_at, decision = remembered
                if now < until:
                    return replace(decision, retry_after=retry_at - now, remembered=True)
                del self._refusals[check.key]
            if self._failures >= FAILURES_TO_OPEN:
                if now < self._probe_at:
                    return self._on_outage.decide(check.identity, check.cost, now)
                # One caller probes; the others continue without the server until it has an answer.
                self._probe_at = now + PROBE_INTERVAL
        return None

    def decide_from(self, check: Check, body: Mapping[str, Any]) -> Decision:
        """Reads the decision of the server, and remembers a refusal."""
        try:
            decision = Decision.from_json(body)
        except (KeyError, TypeError, ValueError) as error:
            raise TollgateError("the server answered with something that is not a decision") from error
        wait = decision.retry_after or 0.0
        if not decision.allowed and not decision.degraded and min(wait, self._remember) > 0 and check.cost > 0:
            now = self._clock()
            with self._lock:
                self._refusals[check.key] = (now + min(wait, self._remember), now + wait, decision)
                if len(self._refusals) > MAX_REMEMBERED:
                    self._refusals.popitem(last=False)
        return decision

    def decide_in_outage(self, check: Check) -> Decision:
        return self._on_outage.decide(check.identity, check.cost, self._clock())

    def forget_refusals(self) -> None:
        """Forgets remembered refusals, after units were returned."""
        with self._lock:
            self._refusals.clear()

    def record_answer(self) -> None:
        with self._lock:
            self._failures = 0

    def record_failure(self) -> None:
        with self._lock:
            self._failures += 1
            self._probe_at = self._clock() + PROBE_INTERVAL


def read_body(response: httpx.Response) -> dict[str, Any]:
    """Returns the JSON of a response, or raises for one that is not a success."""
    if response.status_code >= 500:
        raise Unavailable(f"the server answered {response.status_code}")
    try:
        body = response.json()
    except ValueError:
        body = None
    if response.is_success:
        if isinstance(body, dict):
            return body
        raise TollgateError(f"{response.url} is not the API of a Tollgate server: the response is no JSON object")
    detail = body.get("detail") if isinstance(body, dict) else None
    raise ApiError(response.status_code, detail or f"{response.url} did not say why: is it the API of a Tollgate server?")


def request_id(decision: Decision | str) -> str | None:
    """Returns the id of a decision; `None` if the server did not decide, so that nothing has to be reported."""
    return decision if isinstance(decision, str) else decision.id


def settings(base_url: str, token: str | None, timeout: float) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return {"base_url": base_url, "headers": headers, "timeout": timeout, "trust_env": False}
