"""Spans of stage 5 that are measured elsewhere: on the network and on the node.

Only durations come from the node; they are laid end to end from the moment of dispatch.
"""

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.stream import JobStream
from controlplane.kernel.spans import INDEX

NETWORK = INDEX["s5_infer.network"]
QUEUE = INDEX["s5_infer.queue"]
PREFILL = INDEX["s5_infer.prefill"]
DECODE = INDEX["s5_infer.decode"]


def note_remote_spans(call: Call, stream: JobStream, *, dispatched_us: int) -> None:
    """Write network, queue, prefill and decode of one job, microseconds after arrival."""
    timing = stream.timing
    start_us = dispatched_us
    parts = (
        (NETWORK, stream.network_us),
        (QUEUE, timing.queue_us),
        (PREFILL, timing.prefill_us),
        (DECODE, timing.decode_us),
    )
    for span, duration_us in parts:
        call.spans.set(span, start_us, duration_us)
        start_us += duration_us
