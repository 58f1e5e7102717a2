"""Objectives and their counts for tests, and a server that takes webhooks."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from controlplane.slos.checks import ObjectiveDraft
from controlplane.slos.models import Objective
from tests.support.money import rows

WRITER = uuid.UUID(int=0xF1)


def draft(**changes: Any) -> ObjectiveDraft:
    """99 % of all requests are answered, with some fields changed."""
    fields: dict[str, Any] = {
        "name": "answers",
        "indicator": "availability",
        "target_ppm": 990_000,
        "team": "platform",
        "email": "platform@example.org",
    }
    return ObjectiveDraft(**{**fields, **changes})


def count(
    objective: Objective, at: datetime, *, good: int, total: int, writer: uuid.UUID = WRITER
) -> None:
    """As a gateway writes one minute."""
    minute = int(at.timestamp()) // 60 * 60
    rows(
        "SELECT slo_count(%s, %s::bigint[], %s::uuid[], %s::integer[], %s::bigint[], %s::bigint[])",
        *(writer, [minute], [objective.id], [objective.version], [good], [total]),
    )


class Received(NamedTuple):
    """One request that the server got."""

    path: str
    headers: dict[str, str]
    body: bytes


class Receiver(ThreadingHTTPServer):
    """Takes POSTs, and answers each with the next of `statuses`, or 200."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[Received] = []
        self.statuses: list[int] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}/hook?from=sluice"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(Received(self.path, dict(self.headers), body))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on the tests' output."""


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A server that is there for a while."""
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
