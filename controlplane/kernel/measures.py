"""What telemetry measures: names of timed series, of events, of sampled figures, and the buckets of
prompt length.

A layer's measure is its span's name; the four parts of inference go by their short names. Times are
microseconds, `tokens_per_s` is in thousandths, and an event's histogram counts it, nothing else.
Sampled are how many requests wait, where, how urgent they are and how long the first of them has;
tokens drafted; and how busy nodes are. Every gateway samples its own requests, and a node tells
each draft to one gateway, so sums over gateways count nothing twice. Every gateway samples every
node: only averages and maxima of those figures mean anything.
"""

from bisect import bisect_left

from controlplane.kernel.spans import SPANS, STAGES

STAGE_NAMES = tuple(name for name, _, _ in STAGES)
PHASES = {
    "s5_infer.queue": "queue",
    "s5_infer.prefill": "prefill",
    "s5_infer.decode": "decode",
    "s5_infer.network": "network",
}
# The wait for a node with room, in the gateway.
GATEWAY_WAIT = "s4_route.saturation"
# Measured on each request, and read out of no span. `unattributed` is time in none of the stages,
# `overhead` the time outside inference, and `client_rtt` is no time of the request at all: how long
# its client's connection takes to carry something there and back.
CLIENT_RTT = "client_rtt"
WHOLE = ("total", "ttft", "inter_token", "tokens_per_s", "overhead", "unattributed", CLIENT_RTT)
OWN_MEASURES = WHOLE[:3]
# Kept by model and route, pool, region, prompt length and status; layers are kept by model alone.
HEADLINES = (*WHOLE, *STAGE_NAMES, *PHASES.values(), GATEWAY_WAIT)
LAYERS = tuple(
    span.name
    for span in SPANS
    if span.layer and span.name not in PHASES and span.name != GATEWAY_WAIT
)
MEASURES = (*HEADLINES, *LAYERS)

FINISHES = ("stop", "length", "tool_calls", "content_filter")
FINISH_EVENTS = {finish: f"finish_{finish}" for finish in FINISHES}
FINISH_OTHER = "finish_other"
SHED, CANCELLED, RETRIED = "shed", "cancelled", "retried"
REQUEST_EVENTS = (*FINISH_EVENTS.values(), FINISH_OTHER, SHED, CANCELLED, RETRIED)
BREAKER_OPENED, COLD_START, PREEMPTED = "breaker_opened", "cold_start", "preempted"
NODE_EVENTS = (BREAKER_OPENED, COLD_START, PREEMPTED)
EVENTS = (*REQUEST_EVENTS, *NODE_EVENTS)

SAMPLE_S = 1.0
WAITING_IN_GATEWAY = "waiting_gateway"
WAITING_ON_NODES = "waiting_nodes"
WAITING = "waiting"
# In the gateway, by priority from low to high; and since when the first of all waits there.
WAITING_BY_PRIORITY = ("waiting_low", "waiting_normal", "waiting_high")
OLDEST_WAIT_MS = "waiting_oldest_ms"
# Tokens that engines guessed since the last sample, and those of them that were right.
DRAFTED = "drafted"
ACCEPTED = "accepted"
GAUGES = (WAITING_IN_GATEWAY, WAITING_ON_NODES, WAITING, *WAITING_BY_PRIORITY, OLDEST_WAIT_MS)
DRAFTS = (DRAFTED, ACCEPTED)
# Of all nodes that serve a model: sequences in progress, and jobs that this gateway may send them.
RUNNING = "running"
CREDITS = "credits"
# Of each node: sequences in its step, and how much of its KV pool is taken.
BATCH = "batch"
KV_USED_PERMILLE = "kv_used_permille"
NODES = (RUNNING, CREDITS, BATCH, KV_USED_PERMILLE)
SAMPLES = (*GAUGES, *DRAFTS, *NODES)

KNOWN = frozenset((*MEASURES, *EVENTS, *SAMPLES))

PROMPT_BUCKETS = (256, 1_024, 4_096, 16_384, 65_536)
PROMPT_BUCKET_LABELS = ("≤ 256", "≤ 1k", "≤ 4k", "≤ 16k", "≤ 64k", "> 64k")


def prompt_bucket(tokens: int) -> int:
    """Place of a prompt's length among the labels."""
    return bisect_left(PROMPT_BUCKETS, tokens)
