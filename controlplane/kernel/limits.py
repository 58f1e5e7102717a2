"""The limit that refused a request, as its record keeps it: written by gateways, read by pages."""

from typing import Literal

import msgspec

LimitKind = Literal["requests", "tokens", "requests-day", "concurrency", "budget", "uncounted"]


class ReachedLimit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which limit refused a request with 429.

    `kind` is what was limited (per minute, per day, or at once); `budget`, whose id is `budget`; or
    `uncounted`, where limits could not be counted. `scope` is whose it is: key, project,
    organization, or its wallet. `asked` is what the request would have taken: tokens, or nano-USD
    of a budget. Times are from the refusal on: until there was room for this request, and until
    the limit would be whole again.
    """

    kind: LimitKind
    scope: str = ""
    limit: int | None = None
    budget: str = ""
    asked: int | None = None
    retry_after_ms: int | None = None
    reset_ms: int | None = None
