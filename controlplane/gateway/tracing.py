"""Which trace a request belongs to: its caller's, or one that begins here and has its id."""

import os

from controlplane.gateway.call import Call
from controlplane.kernel.spans import INDEX
from controlplane.kernel.tracing import (
    SPAN_BYTES,
    Trace,
    begins_sampled,
    child_span,
    read_parent,
    read_state,
)

PARENT, STATE = b"traceparent", b"tracestate"
INFER = INDEX["s5_infer"]


def trace_of(call: Call, ratio: float | None) -> Trace | None:
    """`ratio` of the traces that begin here are recorded; None where traces are off.

    A caller's decision is kept. Where traces are off a caller's trace goes on without us.
    """
    header = call.header(PARENT)
    caller = read_parent(header) if header is not None else None
    if caller is not None:
        state = read_state(call.header(STATE))
        if ratio is None:
            return Trace(caller.trace, caller.span, b"", caller.sampled, state, is_ours=False)
        span = os.urandom(SPAN_BYTES)
        return Trace(caller.trace, span, caller.span, caller.sampled, state)
    if ratio is None:
        return None
    sampled = begins_sampled(call.request, ratio)
    return Trace(call.request, os.urandom(SPAN_BYTES), b"", sampled)


def onward_headers(trace: Trace | None) -> tuple[str, str]:
    """`traceparent` and `tracestate` for a server behind a node; empty without a trace."""
    if trace is None:
        return "", ""
    # Where we record nothing the caller itself is the server's parent.
    span = child_span(trace.span, INFER) if trace.is_ours else trace.span
    return trace.header(span), trace.state
