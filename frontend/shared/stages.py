"""The seven stages in the words of the pages; their spans' names stay those of the modules."""

from controlplane.kernel.measures import CLIENT_RTT, GATEWAY_WAIT
from controlplane.kernel.spans import STAGES

STAGE_NAMES = tuple(name for name, _, _ in STAGES)
_WORDS = (
    *("Gateway", "Load balancer", "Tokenizer", "Model router"),
    *("Inference", "Post-processing", "Billing"),
)
LABELS = dict(zip(STAGE_NAMES, _WORDS, strict=True))
# The measure of a request's time that lies in no stage.
UNATTRIBUTED = "unattributed"
OVERHEAD = "overhead"
PHASE_WORDS = {
    "queue": "Node: queue",
    "prefill": "Node: prefill",
    "decode": "Node: decode",
    "network": "Network",
    GATEWAY_WAIT: "Wait in the gateway",
    CLIENT_RTT: "Client network (RTT)",
}
# What a time is of.
MEASURE_WORDS = {
    "total": "Total time",
    "ttft": "Time to first token",
    "inter_token": "Time between tokens",
    OVERHEAD: "Overhead",
    UNATTRIBUTED: "Other",
    **PHASE_WORDS,
    **{name: f"{number} {LABELS[name]}" for number, name in enumerate(STAGE_NAMES, start=1)},
}
