"""The seven stages in the words of the pages; their spans' names stay those of the modules."""

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
