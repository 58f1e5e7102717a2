"""A hosted provider on loopback: a list of models behind a key, and chat completions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import msgspec

from controlplane.catalog.services import PurchaseDraft
from controlplane.connections.models import Connection
from controlplane.connections.offers import OfferDraft
from controlplane.connections.services import ConnectionDraft, connection_create
from controlplane.core.audit.entries import OPERATOR

SECRET = "sk-upstream-0123456789abcdefWXYZ"
UPSTREAM = "gpt-loop"
BUY = PurchaseDraft(input_pico=2_500_000, cached_pico=1_250_000, output_pico=10_000_000)
SELL = PurchaseDraft(input_pico=3_000_000, cached_pico=1_500_000, output_pico=12_000_000)
PROMPT_TOKENS, OUTPUT_TOKENS = 8, 3
ANSWER = [
    json.dumps({"choices": [{"index": 0, "delta": {"content": "Good day."}}]}),
    json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    json.dumps(
        {
            "choices": [],
            "usage": {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": OUTPUT_TOKENS},
        }
    ),
]


def make_connection(**changes: Any) -> Connection:
    """A connection to OpenAI, unless it is said otherwise, without keys and models."""
    values = {"name": "openai-eu", "kind": "openai", "url": "https://api.openai.com/v1"}
    draft = msgspec.convert({**values, **changes}, ConnectionDraft)
    return connection_create(actor=OPERATOR, draft=draft)


def offer(**changes: Any) -> OfferDraft:
    """A model of it with prices."""
    values: dict[str, Any] = {
        "upstream": "gpt-4o",
        "model": "gpt-4o",
        "context_window": 128_000,
        "output_max": 16_384,
        "purchase": BUY,
        "sale": SELL,
    }
    return OfferDraft(**{**values, **changes})


class HostedProvider:
    """Answers whoever has its key; `asked` are paths with the headers that they came with."""

    def __init__(self) -> None:
        self.models = [UPSTREAM, "gpt-other"]
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.status = 200
        self.body: bytes | None = None
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def _answer(self, path: str, headers: dict[str, str]) -> tuple[int, Any]:
        self.asked.append((path, headers))
        secrets = (headers.get("authorization"), headers.get("x-api-key"), headers.get("api-key"))
        if not {f"Bearer {SECRET}", SECRET} & set(secrets):
            return 401, {"error": {"message": "Incorrect API key provided."}}
        return self.status, {"object": "list", "data": [{"id": one} for one in self.models]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            """Answers JSON."""

            def do_GET(self) -> None:
                """The list of models."""
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, told = provider._answer(self.path, headers)
                content = provider.body or json.dumps(told).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_POST(self) -> None:
                """A chat, streamed: three tokens, and the count."""
                self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, told = provider._answer(self.path, headers)
                events = [json.dumps(told)] if status != 200 else [*ANSWER, "[DONE]"]
                content = "".join(f"data: {event}\n\n" for event in events).encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        return Handler


@contextmanager
def hosted_provider() -> Iterator[HostedProvider]:
    """A provider that answers until the test ends."""
    made = HostedProvider()
    thread = Thread(target=made.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join()
