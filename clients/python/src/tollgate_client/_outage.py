"""Outage rules: the decision of the client while the server does not answer."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Protocol

from ._decision import Decision

MAX_KEYS = 10_000
"""The keys that a `LocalLimit` counts at a time. The one that was used least recently is forgotten."""


class OutageRule(Protocol):
    """Decides while the server does not answer. Implementations must be safe to call from several threads."""

    def decide(self, key: str, cost: int, now: float) -> Decision:
        """Decides about a request. `key` is equal for requests with equal identity, `now` is monotonic seconds."""


class Allow:
    """Admits every request while the server does not answer."""

    def decide(self, key: str, cost: int, now: float) -> Decision:
        return Decision(allowed=True, degraded=True, reason="degraded")


class Deny:
    """Refuses every request while the server does not answer."""

    def __init__(self, retry_after: float = 1.0) -> None:
        self._retry_after = retry_after

    def decide(self, key: str, cost: int, now: float) -> Decision:
        return Decision(allowed=False, degraded=True, reason="degraded", retry_after=self._retry_after)


class LocalLimit:
    """A token bucket for each key in this process, of `count` units every `per` seconds.

    Give it a share of the real limit: every process has a bucket of its own.
    """

    def __init__(self, count: int, per: float) -> None:
        if count < 1 or not per > 0:
            raise ValueError("a local limit has a count of at least 1 and a period above 0 s")
        self._count = count
        self._interval = per / count
        self._lock = threading.Lock()
        # The time at which each bucket is full again.
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def decide(self, key: str, cost: int, now: float) -> Decision:
        if cost > self._count:
            return Decision(allowed=False, degraded=True, reason="never")
        with self._lock:
            full_at = max(self._full_at.get(key, now), now) + cost * self._interval
            late = full_at - now - self._count * self._interval
            # A sum of intervals may differ from their product by rounding.
            if late > self._interval * 1e-6:
                return Decision(allowed=False, degraded=True, reason="degraded", retry_after=late)
            self._full_at[key] = full_at
            self._full_at.move_to_end(key)
            if len(self._full_at) > MAX_KEYS:
                self._full_at.popitem(last=False)
        return Decision(allowed=True, degraded=True, reason="degraded")
