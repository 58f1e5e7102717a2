"""One request on its way: its identity, its clock, the time each layer took, and which trace it
belongs to: its caller's, or one that begins here and has its id.
"""

import os
from collections.abc import Callable

from controlplane.gateway.http.round_trip import RoundTrip
from controlplane.kernel import tracing
from controlplane.kernel.clock import MICROSECOND_NS, monotonic_ns, wall_us
from controlplane.kernel.ids import new_request_id
from controlplane.kernel.receipt import Queued
from controlplane.kernel.spans import ABSENT, INDEX, SPANS, pack_spans
from controlplane.kernel.tracing import Trace

REQUEST_DEADLINE_S = 600
MS_PER_S = 1000
_NONE_RUN = [0] * len(SPANS)
PARENT, STATE = b"traceparent", b"tracestate"
INFER = INDEX["s5_infer"]


class ClientGone(Exception):
    """The client closed the connection."""


class Spans:
    """Start (microseconds after arrival) and total duration (nanoseconds) of every span.

    A layer that runs once per token adds up; its start is that of its first run.
    """

    __slots__ = ("origin_ns", "starts_ns", "totals_ns")

    def __init__(self, origin_ns: int) -> None:
        self.origin_ns = origin_ns
        # By the clock; 0 where a span has not run.
        self.starts_ns = _NONE_RUN.copy()
        self.totals_ns = _NONE_RUN.copy()

    clock = staticmethod(monotonic_ns)

    def add(self, index: int, began_ns: int) -> int:
        """Close a run of span `index` that began at `began_ns`; returns the present time."""
        now = monotonic_ns()
        self.totals_ns[index] += now - began_ns
        if not self.starts_ns[index]:
            self.starts_ns[index] = began_ns
        return now

    def set(self, index: int, start_us: int, duration_us: int) -> None:
        """Write a span that was measured elsewhere."""
        self.starts_ns[index] = self.origin_ns + start_us * MICROSECOND_NS
        self.totals_ns[index] = duration_us * MICROSECOND_NS

    def idle(self, index: int) -> None:
        """Note a layer that was passed and had nothing to do."""
        if not self.starts_ns[index]:
            self.starts_ns[index] = monotonic_ns()

    def total_us(self, name: str) -> int:
        """Duration of a span in microseconds; 0 when it did not run."""
        return self.totals_ns[INDEX[name]] // MICROSECOND_NS

    def to_bytes(self) -> bytes:
        """The compact form that `kernel.spans.unpack_spans` reads."""
        origin_ns = self.origin_ns
        starts_us = [
            (start - origin_ns) // MICROSECOND_NS if start else ABSENT for start in self.starts_ns
        ]
        return pack_spans(starts_us, [total // MICROSECOND_NS for total in self.totals_ns])


class Call:
    """Mutable context of one request; everything else on the way is a frozen record.

    `gone` is set when the client closes the connection; `on_gone` is whatever must be told then,
    since the one who waits differs from stage to stage. `peer` is the address of the socket;
    `round_trip` is that of its connection; `queued` is None until it has waited for room; `trace`
    is None where it belongs to none. `thought_ns` is when the first thought came and `answer_ns`
    when the first of an answer after it did, 0 where none has. `priority` is what engines are told.
    """

    __slots__ = (
        "_named", "answer_ns", "arrived_ns", "deadline_s", "first_token_ns", "gone", "headers",
        "inter_token_us", "last_token_ns", "on_gone", "peer", "priority", "queued", "request",
        "round_trip", "spans", "started_us", "thought_ns", "trace",
    )  # fmt: skip

    def __init__(
        self,
        headers: list[tuple[bytes, bytes]],
        peer: str = "",
        round_trip: RoundTrip | None = None,
    ) -> None:
        self.request = new_request_id()
        self.arrived_ns = monotonic_ns()
        self.started_us = wall_us()
        self.headers = headers
        # The first of each name.
        self._named = dict(reversed(headers))
        self.peer = peer
        self.round_trip = round_trip or RoundTrip()
        self.deadline_s = REQUEST_DEADLINE_S
        self.priority = 0
        self.first_token_ns = 0
        self.last_token_ns = 0
        self.thought_ns = self.answer_ns = 0
        self.inter_token_us: list[int] = []
        self.gone = False
        self.on_gone: Callable[[], None] | None = None
        self.queued: Queued | None = None
        self.trace: Trace | None = None
        self.spans = Spans(self.arrived_ns)

    def header(self, name: bytes) -> str | None:
        """First value of a header (lower-case name), decoded as latin-1."""
        value = self._named.get(name)
        return None if value is None else value.decode("latin-1")

    def left_ms(self) -> int:
        """Milliseconds until the request's deadline; 0 when it has passed."""
        return max(0, self.deadline_s * MS_PER_S - self.elapsed_us() // MS_PER_S)

    def elapsed_us(self) -> int:
        """Microseconds since arrival."""
        return (monotonic_ns() - self.arrived_ns) // MICROSECOND_NS

    def note_queued(self, wait_ms: int, position: int, estimate_s: float | None) -> None:
        """A wait for room has ended, in whatever way."""
        before_ms = self.queued.wait_ms if self.queued is not None else 0
        estimate_ms = None if estimate_s is None else round(estimate_s * MS_PER_S)
        self.queued = Queued(before_ms + wait_ms, position, estimate_ms)

    def note_tokens(self) -> None:
        """Tokens have come: the time to the first, or between two arrivals."""
        now = monotonic_ns()
        if not self.first_token_ns:
            self.first_token_ns = now
        else:
            self.inter_token_us.append((now - self.last_token_ns) // MICROSECOND_NS)
        self.last_token_ns = now

    def forget_tokens(self) -> None:
        """Another attempt begins: the times of tokens that were thrown away do not count."""
        self.first_token_ns = self.last_token_ns = 0
        self.thought_ns = self.answer_ns = 0
        self.inter_token_us = []

    def client_left(self) -> None:
        """The client has closed its connection; tells whoever waits, once."""
        if self.gone:
            return
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()


def trace_of(call: Call, ratio: float | None) -> tracing.Trace | None:
    """`ratio` of the traces that begin here are recorded; None where traces are off.

    A caller's decision is kept. Where traces are off a caller's trace goes on without us.
    """
    header = call.header(PARENT)
    caller = tracing.read_parent(header) if header is not None else None
    if caller is not None:
        state = tracing.read_state(call.header(STATE))
        if ratio is None:
            return tracing.Trace(
                caller.trace, caller.span, b"", caller.sampled, state, is_ours=False
            )
        span = os.urandom(tracing.SPAN_BYTES)
        return tracing.Trace(caller.trace, span, caller.span, caller.sampled, state)
    if ratio is None:
        return None
    sampled = tracing.begins_sampled(call.request, ratio)
    return tracing.Trace(call.request, os.urandom(tracing.SPAN_BYTES), b"", sampled)


def onward_headers(trace: tracing.Trace | None) -> tuple[str, str]:
    """`traceparent` and `tracestate` for a server behind a node; empty without a trace."""
    if trace is None:
        return "", ""
    # Where we record nothing the caller itself is the server's parent.
    span = tracing.child_span(trace.span, INFER) if trace.is_ours else trace.span
    return trace.header(span), trace.state
