"""A finished request as OpenTelemetry's spans, sent by OTLP over HTTP. Loaded only where a
collector is named, since its library takes 15 MiB.

One span for the request, with the attributes of the conventions for generative models and ours;
below it the stages, and below each its layers. A stage or layer that ran in pieces, as those of
each token do, is one span from its first piece with the sum of all. No text of a prompt or an
answer is here to be sent.
"""

from collections.abc import Iterator, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from controlplane.bridge.record.traces import Export
from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel.ids import public_id, public_request
from controlplane.kernel.receipt import read_receipt
from controlplane.kernel.spans import ABSENT, INDEX, SPANS, unpack_spans
from controlplane.kernel.statuses import CLIENT_LEFT, FAILED_FROM
from controlplane.kernel.tracing import Trace, child_span

SERVICE = "sluice-gateway"
PROVIDER = "sluice"
OPERATIONS = {"chat": "chat", "completion": "text_completion", "embedding": "embeddings"}
NS_PER_US = 1_000
US_PER_S = 1_000_000
OURS_FROM = 500
_SCOPE = InstrumentationScope("sluice")


def make_export(endpoint: str, instance: str) -> Export:
    """An exporter to one collector; `instance` tells gateways apart."""
    exporter = OTLPSpanExporter(endpoint=endpoint)
    own = Resource({"service.name": SERVICE, "service.instance.id": instance})
    # The environment's OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
    resource = own.merge(OTELResourceDetector().detect())

    def export(records: Sequence[FinishedRequest]) -> bool:
        spans = [span for record in records for span in spans_of(record, resource)]
        return exporter.export(spans) is SpanExportResult.SUCCESS

    return export


def spans_of(record: FinishedRequest, resource: Resource) -> Iterator[ReadableSpan]:
    """The request's span, then those of its stages and layers that ran."""
    trace = record.trace
    if trace is None:
        return
    began_ns = record.started_us * NS_PER_US
    # It was read at the door: the library has no reason to write a line about it.
    state = TraceState.from_header([trace.state]) if trace.state else TraceState()
    parent = _context(trace, trace.parent, state, is_remote=True) if trace.parent else None
    operation = OPERATIONS.get(record.operation, record.operation)
    attributes = _attributes(record)
    yield ReadableSpan(
        name=f"{operation} {attributes['gen_ai.request.model']}".strip() or "request",
        context=_context(trace, trace.span, state),
        parent=parent,
        resource=resource,
        attributes=attributes,
        kind=SpanKind.SERVER,
        status=_status(record),
        start_time=began_ns,
        end_time=began_ns + record.total_us * NS_PER_US,
        instrumentation_scope=_SCOPE,
    )
    for place, (start_us, duration_us) in enumerate(unpack_spans(record.spans)):
        if start_us == ABSENT:
            continue
        span = SPANS[place]
        above = child_span(trace.span, INDEX[span.stage]) if span.layer else trace.span
        start_ns = began_ns + start_us * NS_PER_US
        yield ReadableSpan(
            name=span.name,
            context=_context(trace, child_span(trace.span, place), state),
            parent=_context(trace, above, state),
            resource=resource,
            attributes={"sluice.stage": span.stage, "sluice.remote": span.remote},
            kind=SpanKind.INTERNAL,
            start_time=start_ns,
            end_time=start_ns + duration_us * NS_PER_US,
            instrumentation_scope=_SCOPE,
        )


def _context(
    trace: Trace, span: bytes, state: TraceState, *, is_remote: bool = False
) -> SpanContext:
    return SpanContext(
        trace_id=int.from_bytes(trace.trace, "big"),
        span_id=int.from_bytes(span, "big"),
        is_remote=is_remote,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
        trace_state=state,
    )


def _status(record: FinishedRequest) -> Status:
    # Of a server's span only faults of the server are errors.
    failed = record.status >= OURS_FROM
    return Status(StatusCode.ERROR, record.error_code) if failed else Status()


def _attributes(record: FinishedRequest) -> dict[str, str | int | float | bool | list[str]]:
    receipt = read_receipt(record.receipt)
    made: dict[str, str | int | float | bool | list[str]] = {
        "gen_ai.operation.name": OPERATIONS.get(record.operation, record.operation),
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": receipt.asked or record.model,
        "gen_ai.response.model": record.model,
        "gen_ai.request.stream": record.stream,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": record.cached_tokens,
        "http.request.method": "POST",
        "http.response.status_code": record.status,
        "sluice.request": public_request(record.request),
        "sluice.organization": public_id("org", record.organization),
        "sluice.project": public_id("proj", record.project),
        "sluice.key": public_id("key", record.key),
        "sluice.route": record.route,
        "sluice.pool": record.pool,
        "sluice.region": record.region,
        "sluice.node": record.node,
        "sluice.retries": record.retries,
        "sluice.cost_nano_usd": record.cost_nano,
    }
    if record.finish:
        made["gen_ai.response.finish_reasons"] = [record.finish]
    if record.ttft_us >= 0:
        made["gen_ai.response.time_to_first_chunk"] = record.ttft_us / US_PER_S
    if record.status >= FAILED_FROM:
        left = record.status == CLIENT_LEFT
        made["error.type"] = "client_left" if left else record.error_code or str(record.status)
    for before in receipt.before:
        made[f"sluice.client.{before.name}.duration_ms"] = before.dur_ms
    return made
