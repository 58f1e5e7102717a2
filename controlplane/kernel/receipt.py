"""The receipt of a request: why it went where it did, or what refused it.

A gateway writes one with each record, as JSON that leaves out what did not happen; pages, traces
and dry runs read it back as this type. No text of a prompt is in it, but in `Miss.around` where the
project lets text be kept.
"""

from typing import Literal

import msgspec

from controlplane.kernel.limits import ReachedLimit
from controlplane.kernel.rules import SizeClass
from controlplane.kernel.servertiming import Before

SERVED = "served"
SizeBy = Literal["classifier", "request", "retry", "thumbs_down", "bounds", "shadow"]
"""Why a size class serves: it was chosen; the request names it; the smaller one was tried before;
what the smaller one may do is too little; or it serves whatever is chosen.
"""
IndexState = Literal["", "exact", "stale", "approximate", "ring"]
"""Of the prefix index when a node was chosen: up to date, late for some nodes, of some nodes known
only by what they were sent, or without use.
"""
# What qualifies a count of cached tokens.
BELIEVED: dict[IndexState, str] = {
    "stale": " (as far as is known: the events of some nodes are late)",
    "approximate": " (as far as is known: the caches of some nodes cannot be followed)",
}


class PassedStep(msgspec.Struct, frozen=True):
    """A step of the plan and what came of it: `served`, a refusal's code, or a field's name."""

    step: int
    model: str
    pool: str
    reason: str


class NodeAttempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node that had the request and did not finish it, and why."""

    node: str
    reason: str = ""


class Queued(msgspec.Struct, frozen=True):
    """How long a request waited for room in all, and how its last wait looked when it began.

    `position` is how many were before it; `estimate_ms` None where nothing was measured yet.
    """

    wait_ms: int
    position: int
    estimate_ms: int | None


class WeighedNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node that was weighed. `cost_ms` is the sum of the parts after it.

    Tenants are told neither its load nor what depends on that: None.
    """

    node: str
    cached_tokens: int
    queued_tokens: int | None = None
    active: int | None = None
    cost_ms: float | None = None
    wait_ms: float | None = None
    prefill_ms: float | None = None
    active_ms: float | None = None
    busy_ms: float | None = None
    evict_ms: float | None = None
    overflow_ms: float | None = None


class PromptChange(msgspec.Struct, frozen=True, kw_only=True):
    """The text where a prompt left the earlier one, with what stands around it in this one."""

    before: str
    was: str
    now: str
    after: str


class Miss(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why tokens were not in the cache. `block` and `token` say where the prompt left the nearest
    earlier one; `avoidable_tokens` would have been cached but for the cause.

    `elsewhere`: another tenant has sent the same beginning, and tenants share nothing. Only the
    operator may see that: to a tenant it would tell what others ask.
    """

    cause: str
    missed_tokens: int = 0
    avoidable_tokens: int = 0
    block: int | None = None
    token: int | None = None
    cost_nano: int = 0
    prefill_ms: float = 0.0
    around: PromptChange | None = None
    elsewhere: bool = False


class NetworkLine(msgspec.Struct, frozen=True):
    """The smoothed round-trip time of the connection, of the `client` or of a trusted `proxy`."""

    rtt_us: int
    of: str


class SizeChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The size class that the classifier chose, with its `probability` and the features that
    decided; which one `served`, and by what.

    `us` is what the choice took, in microseconds. `model` is what the chosen class would have gone
    to first, `largest` what the largest one would have. By `conversation`, a digest in hex,
    the next request of its talk is known if the answer is rated.
    """

    chosen: SizeClass
    served: SizeClass
    by: SizeBy = "classifier"
    probability: float = 0.0
    why: tuple[str, ...] = ()
    us: float = 0.0
    model: str = ""
    largest: str = ""
    conversation: str = ""


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a request besides the figures of its record.

    `rule` to `candidates` are what routing knew and did, the cheapest candidates first; `steps`
    those of its rule with what came of each, `attempts` the nodes that did not finish it. `usage`
    names the source of its token counts where that is not the gateway. `images` were in its
    prompt, which then has no block hashes; `prompt` and `tools` are what was stored, each with its
    version. `limit` refused it, `lack` is what the fleet lacked.
    `prefill` is the node that computed the prompt for `node`; the index and what it told are then
    of that one. `ignored` are fields of the request that changed nothing, `labels` those of its
    `metadata` that its project keeps. `masked` counts by kind what a policy of its
    project masked in it, `policy` refused it or ended its answer.
    `before` is what its client did before the call, as it says.
    `size` is there where a rule asked for the size class of the request.
    Where a model thought, `first_thought_us` and `first_answer_us` count from its arrival.
    """

    asked: str = ""
    rule: str = ""
    steps: tuple[PassedStep, ...] = ()
    prompt: str = ""
    tools: tuple[str, ...] = ()
    node: str = ""
    why: str = ""
    index: IndexState = ""
    available_tokens: int = 0
    predicted_cached_tokens: int = 0
    delivered_cached_tokens: int | None = None
    candidates: tuple[WeighedNode, ...] = ()
    attempts: tuple[NodeAttempt, ...] = ()
    queue: Queued | None = None
    usage: str = ""
    reasoning_tokens: int = 0
    images: int = 0
    first_thought_us: int = 0
    first_answer_us: int = 0
    miss: Miss | None = None
    limit: ReachedLimit | None = None
    lack: str = ""
    trace: str = ""
    ignored: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    masked: dict[str, int] = {}
    policy: str = ""
    line: NetworkLine | None = None
    before: tuple[Before, ...] = ()
    prefill: str = ""
    size: SizeChoice | None = None


NONE = Receipt()
_DECODER = msgspec.json.Decoder(Receipt)


def write_receipt(receipt: Receipt) -> bytes:
    """As it is kept; empty where it tells nothing."""
    return b"" if receipt == NONE else msgspec.json.encode(receipt)


def read_receipt(data: bytes) -> Receipt:
    """A kept receipt; one that tells nothing where there is none or it cannot be read."""
    if not data:
        return NONE
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return NONE
