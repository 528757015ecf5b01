"""Decisions, as the API returns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LimitOutcome:
    """The outcome of one window of one limit."""

    name: str
    window: str | None
    key: str
    allowed: bool
    limit: int
    remaining: int
    retry_after: float | None
    """Seconds until a request like this one passes; `None` if waiting is not needed or does not help."""
    reset_after: float
    """Seconds until the key has its full allowance."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a check.

    A decision has no truth value on purpose: ask for `allowed`.
    """

    allowed: bool
    id: str | None = None
    """The id, to settle, renew or release the request; `None` if the server did not decide."""
    limit: str | None = None
    """The limit that refused, otherwise the one closest to refusing."""
    retry_after: float | None = None
    """Seconds to wait after a refusal; `None` if waiting is not needed or does not help."""
    wait: float = 0.0
    """Seconds to wait before an admitted request starts, if a limit has a queue."""
    degraded: bool = False
    """Whether outage rules decided: those of the server, or those of this client."""
    remembered: bool = False
    """Whether this client repeated an earlier refusal without a call."""
    priority: str | None = None
    reason: str | None = None
    limits: tuple[LimitOutcome, ...] = ()

    def __bool__(self) -> bool:
        raise TypeError("a decision has no truth value: use decision.allowed")

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Decision:
        """Reads the response to a check. Members that this version does not know are ignored."""
        return cls(
            allowed=bool(body["allowed"]),
            id=body.get("id"),
            limit=body.get("limit"),
            retry_after=_seconds(body.get("retry_after_ms")),
            wait=_seconds(body.get("wait_ms")) or 0.0,
            degraded=bool(body.get("degraded", False)),
            priority=body.get("priority"),
            reason=body.get("reason"),
            limits=tuple(_outcome(it) for it in body.get("limits", ())),
        )


def _outcome(body: Mapping[str, Any]) -> LimitOutcome:
    return LimitOutcome(
        name=body["name"],
        window=body.get("window"),
        key=body["key"],
        allowed=bool(body["allowed"]),
        limit=int(body["limit"]),
        remaining=int(body["remaining"]),
        retry_after=_seconds(body.get("retry_after_ms")),
        reset_after=_seconds(body.get("reset_after_ms")) or 0.0,
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
