"""A forward proxy on loopback, as companies put one before the internet, and servers behind it."""

from __future__ import annotations

import socket
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from tests.support.loopback import HOST
from tests.support.tls import make_authority

USER, PASSWORD = "sluice", "p@ss word"
_BLOCK = 1 << 16


class ForwardProxy:
    """Passes on what it is asked for to a port of `leads`, by host; `asked` is what that was.

    It answers 407 without its password, where it asks for one, and 403 to hosts it does not know.
    """

    def __init__(self) -> None:
        self.leads: dict[str, int] = {}
        self.asked: list[str] = []
        self.guarded = False
        self.server = ThreadingHTTPServer((HOST, 0), self._handler())
        self.server.daemon_threads = True
        self.url = f"http://{HOST}:{self.server.server_port}"

    def status(self, host: str, shown: str | None) -> int:
        """How it answers to a question for a host."""
        wanted = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.guarded and shown != f"Basic {wanted}":
            return 407
        return 200 if host in self.leads else 403

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            """CONNECT, and requests for whole URLs."""

            def do_CONNECT(self) -> None:
                """Open a way to a host and port."""
                proxy.asked.append(f"CONNECT {self.path}")
                found = self._lead(self.path.rpartition(":")[0])
                if found is not None:
                    self.send_response(200)
                    self.end_headers()
                    self._pass_on(found)

            def do_GET(self) -> None:
                """Ask for a URL in the client's place."""
                proxy.asked.append(f"{self.command} {self.path}")
                parts = urlsplit(self.path)
                found = self._lead(parts.hostname or "")
                if found is None:
                    return
                self.headers["Connection"] = "close"
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                rest = f"{parts.path}?{parts.query}" if parts.query else parts.path
                lines = [f"{self.command} {rest} HTTP/1.1"]
                lines += [f"{name}: {value}" for name, value in self.headers.items()]
                found.sendall("\r\n".join([*lines, "", ""]).encode() + body)
                self._pass_on(found)

            do_HEAD = do_POST = do_GET

            def _lead(self, host: str) -> socket.socket | None:
                status = proxy.status(host, self.headers["Proxy-Authorization"])
                if status == 200:
                    return socket.create_connection((HOST, proxy.leads[host]))
                self.send_error(status)
                return None

            def _pass_on(self, far: socket.socket) -> None:
                self.close_connection = True
                with far:
                    there = Thread(target=_copy, args=(self.connection, far))
                    there.start()
                    _copy(far, self.connection)
                    there.join()

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        return Handler


def _copy(source: socket.socket, target: socket.socket) -> None:
    """All that comes, then the end; the other way ends with it."""
    with suppress(OSError):
        while block := source.recv(_BLOCK):
            target.sendall(block)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def running(server: HTTPServer) -> Iterator[int]:
    """Serve until the block ends; its port."""
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def proxy_running() -> Iterator[ForwardProxy]:
    """A proxy until the block ends."""
    made = ForwardProxy()
    with running(made.server):
        yield made


def certificate(folder: Path, *names: str) -> tuple[Path, ssl.SSLContext]:
    """A file to trust, and a server's context with a certificate that names these hosts."""
    made = make_authority(folder, *names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    return made.ca, context
