"""The range of every figure that a node may send, in one table.

Figures of an `Output`, which come with every token, are checked in `checks` together with the rest
of it; a test sends each figure of each frame beyond its range and wants a strike that names it.
"""

from collections.abc import Mapping

import msgspec

from controlplane.gateway.nodes.limits import BLOCK_SIZE_MAX, CREDITS_MAX, KV_BLOCKS_MAX
from inference.contract.frames import (
    Credits,
    Draining,
    Hello,
    KvEvents,
    ModelOffer,
    Pong,
    Processing,
    Step,
)
from inference.contract.replay import Resume
from inference.contract.roofline import SHARE_MAX, Ceilings, Shares

CONTEXT_WINDOW_MAX = 16_777_216
VOCAB_SIZE_MAX = 4_194_304
# A day: a node that needs longer has failed at something else.
COLD_START_MS_MAX = 86_400_000
MS_PER_S = 1_000
DRAIN_S_MAX = SILENCE_S_MAX = 86_400.0
# A device that is faster is not built.
CEILING_MAX = 1e18
# 36 minutes: what a span of the waterfall can hold.
DURATION_US_MAX = 2**31 - 1
# Prompts of the largest window for 256 requests.
QUEUED_TOKENS_MAX = 2**32
SEQUENCES_MAX = 1_048_576
STEP_TOKENS_MAX = 16_777_216
DRAFTED_MAX = 1_048_576
# Ten years.
BLOCK_AGE_S_MAX = 315_360_000.0
# The greatest count that every reader of JSON keeps exactly.
COUNTER_MAX = 2**53 - 1

Range = tuple[float, float]
RANGES: Mapping[type[msgspec.Struct], Mapping[str, Range]] = {
    Hello: {
        "credits": (0, CREDITS_MAX),
        "block_size": (1, BLOCK_SIZE_MAX),
        "kv_blocks": (0, KV_BLOCKS_MAX),
        "cold_start_ms": (0, COLD_START_MS_MAX),
        "silence_s": (0, SILENCE_S_MAX),
    },
    Ceilings: {"read_bytes_s": (1, CEILING_MAX), "flop_s": (1, CEILING_MAX)},
    ModelOffer: {"context_window": (1, CONTEXT_WINDOW_MAX), "vocab_size": (0, VOCAB_SIZE_MAX)},
    Step: {
        "running": (0, SEQUENCES_MAX),
        "waiting": (0, SEQUENCES_MAX),
        "waiting_tokens": (0, QUEUED_TOKENS_MAX),
        "kv_free_blocks": (0, KV_BLOCKS_MAX),
        "oldest_block_s": (0, BLOCK_AGE_S_MAX),
        "step_us": (0, DURATION_US_MAX),
        "preemptions": (0, SEQUENCES_MAX),
        "drafted": (0, DRAFTED_MAX),
        "accepted": (0, DRAFTED_MAX),
        "prefilled_tokens": (0, STEP_TOKENS_MAX),
        "kv_cached_blocks": (0, KV_BLOCKS_MAX),
        "others_active": (0, SEQUENCES_MAX),
        "others_queued_tokens": (0, QUEUED_TOKENS_MAX),
        "computing_ms": (0, MS_PER_S * SILENCE_S_MAX),
    },
    Processing: {"silent_ms": (0, MS_PER_S * SILENCE_S_MAX)},
    Shares: {"decode": (0, SHARE_MAX), "prefill": (0, SHARE_MAX)},
    KvEvents: {"seq": (0, COUNTER_MAX)},
    Credits: {"number": (0, COUNTER_MAX), "credits": (0, CREDITS_MAX)},
    Draining: {"deadline_s": (0, DRAIN_S_MAX)},
    Pong: {"received": (0, COUNTER_MAX)},
    Resume: {"received": (0, COUNTER_MAX), "held": (0, COUNTER_MAX)},
}
_NONE: Mapping[str, Range] = {}
_NAMES = {
    Hello: "hello", Ceilings: "hello.ceilings", ModelOffer: "hello.models", Step: "step",
    Shares: "step.shares", Processing: "step.processing", KvEvents: "kv", Credits: "credits",
    Draining: "draining", Pong: "pong", Resume: "resume",
}  # fmt: skip


def figure_problem(frame: msgspec.Struct) -> str | None:
    """The first figure that is out of its range; None fits where a field may have none."""
    kind = type(frame)
    for field, (low, high) in RANGES.get(kind, _NONE).items():
        value = getattr(frame, field)
        # Also refuses NaN, which is neither below nor above.
        if value is not None and not low <= value <= high:
            return f"{_NAMES[kind]}.{field}: {value} is not in {low:.17g}..{high:.17g}"
    return None
