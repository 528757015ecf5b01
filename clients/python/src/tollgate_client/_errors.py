"""Errors of the client."""

from __future__ import annotations

from ._decision import Decision


class TollgateError(Exception):
    """Base class of all errors of this package."""


class Refused(TollgateError):
    """A permit was refused. `decision` says by which limit and for how long."""

    def __init__(self, decision: Decision) -> None:
        by = f"by `{decision.limit}`" if decision.limit else decision.reason or "by the outage rule of the client"
        after = "" if decision.retry_after is None else f"; retry after {decision.retry_after:g} s"
        super().__init__(f"refused {by}{after}")
        self.decision = decision


class ApiError(TollgateError):
    """The server rejected a call. The message says what to change."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail


class Unavailable(TollgateError):
    """The server did not answer, and the call has no outage rule: settle, renew, release, peek."""
