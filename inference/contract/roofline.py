"""What a node's device can do at most, how its engine computes, and how near that came to it."""

import msgspec

# Over one where a ceiling was measured on a busy machine.
SHARE_MAX = 10.0
# Of the reason why an engine is slow; longer ones are cut by the node.
SLOW_CHARS_MAX = 200
# Begins the line of a node's log that says its path; `sluice run` looks for it.
RUNS_ON = "the engine runs on "


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


class ComputePath(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What an engine computes with, such as `native AVX2`, `torch` or `triton`.

    `slow` says why that is not the fastest it has, empty where it is. The rates, tokens a second,
    are of one short request that ran alone at the start; None where none was measured.
    """

    kernels: str
    slow: str = ""
    decode_tokens_s: float | None = None
    prefill_tokens_s: float | None = None

    @property
    def words(self) -> str:
        """For one line of a log or a terminal."""
        return f"{self.kernels}, a slow path: {self.slow}" if self.slow else self.kernels
