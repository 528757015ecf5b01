"""The blocking client."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import httpx

from ._decision import Decision
from ._errors import Refused, TollgateError, Unavailable
from ._outage import Allow, OutageRule
from ._session import Check, Session, limit_check, limit_path, read_body, request_check, request_id, settings


class Tollgate:
    """The blocking client. Threads may share it.

    - `token`: sent as a bearer token.
    - `timeout`: seconds that a call may take, then the outage rule decides.
    - `on_outage`: `Allow()` (the default), `Deny()`, `LocalLimit(count, per)` or an object of your own.
    - `remember`: the longest time in seconds for which a refusal is repeated without a call. An operator's
      grant is noticed after this time. 0 turns it off.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:7070",
        *,
        token: str | None = None,
        timeout: float = 0.25,
        on_outage: OutageRule | None = None,
        remember: float = 1.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = httpx.Client(**settings(base_url, token, timeout), transport=transport)
        self._session = Session(on_outage or Allow(), remember)

    def __enter__(self) -> Tollgate:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def check(
        self,
        path: str,
        *,
        method: str | None = None,
        host: str | None = None,
        ip: str | None = None,
        user: str | None = None,
        api_key: str | None = None,
        tenant: str | None = None,
        plan: str | None = None,
        headers: Mapping[str, str | Sequence[str]] | None = None,
        claims: Mapping[str, str | Sequence[str]] | None = None,
        cost: int | None = None,
    ) -> Decision:
        """Decides about a request by all limits that cover it, and charges it if it is admitted."""
        fields = {
            "method": method, "host": host, "ip": ip, "user": user, "api_key": api_key, "tenant": tenant,
            "plan": plan, "headers": headers, "claims": claims,
        }  # fmt: skip
        return self._decide(request_check(path, cost, fields))

    def check_limit(self, limit: str, key: str | list[str], *, cost: int = 1) -> Decision:
        """Decides by one limit of the policy about one key, and charges it if it is admitted."""
        return self._decide(limit_check(limit, key, cost))

    def permit(self, path: str, *, renew_every: float | None = None, **request: Any) -> Permit:
        """Returns a permit for a request, or raises `Refused`. The arguments are those of `check`.

        Waits if a limit with a queue says so. Leaving the `with` block releases the slots of the request.
        `renew_every` renews them for as long as the block runs; choose less than half of the limit's `ttl`.
        """
        return self._start((self.check(path, **request)), renew_every)

    def permit_limit(
        self, limit: str, key: str | list[str], *, cost: int = 1, renew_every: float | None = None
    ) -> Permit:
        """Returns a permit of one limit for one key, or raises `Refused`. See `permit`."""
        return self._start((self.check_limit(limit, key, cost=cost)), renew_every)

    def peek(self, limit: str, key: str | list[str]) -> Decision:
        """Returns the state of a key. Charges nothing."""
        return Decision.from_json(self._call(limit_path(limit, "peek"), {"key": key}))

    def grant(self, limit: str, key: str | list[str], units: int) -> Decision:
        """Returns units to a key, up to a full allowance."""
        return self._change(limit, "grant", {"key": key, "cost": units})

    def refund(self, limit: str, key: str | list[str], *, cost: int = 1) -> Decision:
        """Returns the last charge of a key, up to a full allowance."""
        return self._change(limit, "refund", {"key": key, "cost": cost})

    def reset(self, limit: str, key: str | list[str]) -> Decision:
        """Resets a key to its full allowance."""
        return self._change(limit, "reset", {"key": key})

    def settle(self, decision: Decision | str, cost: int) -> None:
        """Reports the final cost of an admitted request. The first settlement is final."""
        if (id := request_id(decision)) is not None:
            self._call("/v1/settle", {"id": id, "cost": cost})

    def renew(self, decision: Decision | str) -> int:
        """Starts the leases of the slots of a request again. Returns the number of slots that it still holds."""
        id = request_id(decision)
        return 0 if id is None else int((self._call("/v1/renew", {"id": id}))["slots"])

    def release(self, decision: Decision | str) -> int:
        """Releases the slots of a request. Returns their number. Releasing twice is harmless."""
        id = request_id(decision)
        return 0 if id is None else int((self._call("/v1/release", {"id": id}))["slots"])

    def _decide(self, check: Check) -> Decision:
        decision = self._session.decide_without_call(check)
        if decision is not None:
            return decision
        try:
            body = self._call(check.path, check.body)
        except Unavailable:
            return self._session.decide_in_outage(check)
        return self._session.decide_from(check, body)

    def _change(self, limit: str, operation: str, body: Mapping[str, Any]) -> Decision:
        decision = Decision.from_json(self._call(limit_path(limit, operation), body))
        self._session.forget_refusals()
        return decision

    def _call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            response = self._http.post(path, json=body)
            answer = read_body(response)
        except Unavailable:
            self._session.record_failure()
            raise
        except httpx.TransportError as error:
            self._session.record_failure()
            raise Unavailable(f"no answer from {self._http.base_url}: {error}") from error
        except TollgateError:
            self._session.record_answer()
            raise
        self._session.record_answer()
        return answer

    def _start(self, decision: Decision, renew_every: float | None) -> Permit:
        if not decision.allowed:
            raise Refused(decision)
        permit = Permit(self, decision, renew_every)
        if decision.wait > 0:
            try:
                time.sleep(decision.wait)
            except BaseException:
                permit.release()
                raise
        return permit


class Permit:
    """An admitted request. `with` releases its slots at the end."""

    def __init__(self, client: Tollgate, decision: Decision, renew_every: float | None) -> None:
        self.decision = decision
        self._client = client
        self._renew_every = renew_every
        self._ended = threading.Event()

    def __enter__(self) -> Permit:
        if self._renew_every is not None:
            threading.Thread(target=self._renew_until_ended, args=(self._renew_every,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def settle(self, cost: int) -> None:
        """Reports the final cost of the request."""
        self._client.settle(self.decision, cost)

    def release(self) -> None:
        """Releases the slots of the request. A server that does not answer lets them expire."""
        if self._ended.is_set():
            return
        self._ended.set()
        try:
            self._client.release(self.decision)
        except TollgateError:
            pass

    def _renew_until_ended(self, every: float) -> None:
        while not self._ended.wait(every):
            try:
                self._client.renew(self.decision)
            except TollgateError:
                # The next renewal may still be in time.
                pass
