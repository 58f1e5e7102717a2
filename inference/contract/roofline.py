"""What a node's device can do at most, and how near its engine came to it."""

import msgspec

# Over one where a ceiling was measured on a busy machine.
SHARE_MAX = 10.0


class Ceilings(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Bytes read and floating-point operations a second, as the engine measured them at its start.

    `source` says how, as text.
    """

    read_bytes_s: float
    flop_s: float
    source: str


class Shares(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Parts of the ceilings, 0 to `SHARE_MAX`, that the last seconds of steps of a kind needed.

    `decode` is of what can be read, `prefill` of the operations; None before the first such step.
    """

    decode: float | None = None
    prefill: float | None = None
