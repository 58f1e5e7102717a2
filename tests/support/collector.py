"""A collector of OpenTelemetry traces on loopback: takes OTLP over HTTP and keeps the spans."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATH = "/v1/traces"


@dataclass
class Taken:
    """One span as it came, with plain attributes."""

    trace: str
    span: str
    parent: str
    name: str
    kind: int
    begin_ns: int
    end_ns: int
    state: str
    status: int
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass
class Collector:
    """Where it listens, and what it has taken."""

    url: str
    spans: list[Taken] = field(default_factory=list)
    refuses: bool = False

    def of_trace(self, trace: str) -> list[Taken]:
        """Spans of one trace."""
        return [span for span in self.spans if span.trace == trace]


@contextlib.contextmanager
def running_collector() -> Iterator[Collector]:
    """Listens until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        """One request of an exporter."""

        def do_POST(self) -> None:
            """Decode and keep."""
            data = self.rfile.read(int(self.headers["content-length"]))
            refused = collector.refuses or self.path != PATH
            if not refused:
                collector.spans += decoded(data)
            self.send_response(400 if refused else 200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


def decoded(data: bytes) -> list[Taken]:
    """The spans of one export."""
    request = ExportTraceServiceRequest.FromString(data)
    return [
        Taken(
            trace=span.trace_id.hex(),
            span=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            name=span.name,
            kind=span.kind,
            begin_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            state=span.trace_state,
            status=span.status.code,
            attributes=plain(span.attributes),
            resource=plain(group.resource.attributes),
        )
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes as Python's own values."""
    return {pair.key: _value(pair.value) for pair in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)
