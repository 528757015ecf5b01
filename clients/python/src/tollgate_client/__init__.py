"""Client of the Tollgate rate limiter.

`Tollgate` is the blocking client and `AsyncTollgate` the one for asyncio. Both have the same methods.
"""

from ._aio import AsyncPermit, AsyncTollgate
from ._blocking import Permit, Tollgate
from ._decision import Decision, LimitOutcome
from ._errors import ApiError, Refused, TollgateError, Unavailable
from ._outage import Allow, Deny, LocalLimit, OutageRule

__all__ = [
    "Allow",
    "ApiError",
    "AsyncPermit",
    "AsyncTollgate",
    "Decision",
    "Deny",
    "LimitOutcome",
    "LocalLimit",
    "OutageRule",
    "Permit",
    "Refused",
    "Tollgate",
    "TollgateError",
    "Unavailable",
]
