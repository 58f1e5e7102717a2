"""A proxy between a client and a gateway that keeps what went through it.

It streams: what the gateway sends is passed on at once. Requests are of `BODY_MAX` bytes at most.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from tests.support.loopback import HOST

BODY_MAX = 2**22
PART_BYTES = 2**16
# Of an answer as it is kept; a refusal is shorter.
ANSWER_CHARS_MAX = 4_000
# As long as a busy machine may take for the first token of a long prompt.
ANSWER_S_MAX = 420.0
EXCHANGES_MAX = 1_000
# They belong to one connection, or are written anew.
OWN_HEADERS = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding"})
SECRET_HEADERS = frozenset({"authorization", "x-api-key", "cookie"})


@dataclass
class Exchange:
    """One request and the begin of its answer; status 0 is none yet."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    status: int = 0
    answer: str = ""


@dataclass
class Tap:
    """Where a client dials, and what it asked for, oldest first."""

    url: str
    exchanges: list[Exchange] = field(default_factory=list)

    def refused(self) -> list[Exchange]:
        """What was answered by an error, or not at all."""
        return [each for each in self.exchanges if not 200 <= each.status < 400]

    def keep(self, path: Path) -> None:
        """Write every exchange as JSON, without keys."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([asdict(each) for each in self.exchanges], indent=1) + "\n")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # So that a client which keeps its connection open holds up nobody.
    timeout = ANSWER_S_MAX
    gateway: ClassVar[tuple[str, int]]
    tap: ClassVar[Tap]

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def handle(self) -> None:
        """Requests of one connection; a client may go at any time."""
        with contextlib.suppress(ConnectionError, TimeoutError):
            super().handle()

    def answer(self) -> None:
        """Ask the gateway the same, and pass its answer on as it comes."""
        body = self.rfile.read(min(int(self.headers.get("content-length") or 0), BODY_MAX))
        exchange = Exchange(self.command, self.path, self._kept_headers(), _body(body))
        assert len(self.tap.exchanges) < EXCHANGES_MAX
        self.tap.exchanges.append(exchange)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in OWN_HEADERS}
        with contextlib.closing(
            http.client.HTTPConnection(*self.gateway, timeout=ANSWER_S_MAX)
        ) as gateway:
            gateway.request(self.command, self.path, body or None, headers)
            with gateway.getresponse() as response:
                exchange.status = response.status
                self._pass_on(response, exchange)

    do_GET = do_HEAD = do_POST = do_DELETE = answer

    def _kept_headers(self) -> dict[str, str]:
        return {
            name: "..." if name.lower() in SECRET_HEADERS else value
            for name, value in self.headers.items()
        }

    def _pass_on(self, response: http.client.HTTPResponse, exchange: Exchange) -> None:
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            if name.lower() not in OWN_HEADERS:
                self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        while self.command != "HEAD" and (part := response.read1(PART_BYTES)):
            if len(exchange.answer) < ANSWER_CHARS_MAX:
                exchange.answer += part.decode(errors="replace")[:ANSWER_CHARS_MAX]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        if self.command != "HEAD":
            self.wfile.write(b"0\r\n\r\n")


def _body(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return raw.decode(errors="replace")


@contextlib.contextmanager
def tapped(url: str) -> Iterator[Tap]:
    """Listen on loopback until the block ends, in front of the gateway at this URL."""
    parts = urlsplit(url)
    tap = Tap("")
    told = {"gateway": (parts.hostname, parts.port), "tap": tap}
    server = ThreadingHTTPServer((HOST, 0), type("Handler", (_Handler,), told))
    server.daemon_threads = True
    # What clients leave open is no reason to wait.
    server.block_on_close = False
    tap.url = f"http://{HOST}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield tap
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
