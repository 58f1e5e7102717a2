"""Spans of stage 5 that are measured elsewhere: on the network and on the node.

Only durations come from the node; they are laid end to end from the moment of dispatch. Where
another node has computed the prompt, its times are in the same spans, from its own dispatch on.
"""

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.stream import NO_TIMES, JobStream
from controlplane.kernel.spans import INDEX

NETWORK = INDEX["s5_infer.network"]
QUEUE = INDEX["s5_infer.queue"]
PREFILL = INDEX["s5_infer.prefill"]
DECODE = INDEX["s5_infer.decode"]


def note_remote_spans(call: Call, stream: JobStream, *, dispatched_us: int) -> None:
    """Write network, queue, prefill and decode of one job, microseconds after arrival."""
    start_us, before = stream.apart or (dispatched_us, NO_TIMES)
    spans = (NETWORK, QUEUE, PREFILL, DECODE)
    for span, own_us, before_us in zip(spans, stream.times, before, strict=True):
        duration_us = own_us + before_us
        call.spans.set(span, start_us, duration_us)
        start_us += duration_us
