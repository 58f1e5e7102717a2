"""Links of clients: named hosts alone, checked addresses, no redirects, within bounds."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest
from pytest import MonkeyPatch

from controlplane.bridge.http import links
from controlplane.bridge.http.links import fetch_from
from controlplane.gateway.ports_contents import FetchRefused

PUBLIC, INSIDE = "93.184.216.34", "10.0.0.7"
NAMES = {"images.example": PUBLIC, "inside.example": INSIDE, "metadata.example": "169.254.169.254"}


class Images(BaseHTTPRequestHandler):
    """A server that redirects, fails and sends too much."""

    answers: ClassVar[dict[str, tuple[int, bytes]]] = {
        "/a.png": (200, b"image"), "/moved.png": (302, b""), "/none.png": (404, b"no"),
        "/big.png": (200, b"x" * 65),
    }  # fmt: skip

    def do_GET(self) -> None:
        status, body = self.answers[self.path.partition("?")[0]]
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.send_header("location", "http://inside.example/")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def reached(monkeypatch: MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """Names of our own, and where connections went; all of them lead to one server."""
    server = HTTPServer(("127.0.0.1", 0), Images)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    went: list[tuple[str, int]] = []
    connect, real = socket.create_connection, socket.getaddrinfo

    def look_up(host: str, port: int, *more: Any, **named: Any) -> list[Any]:
        if host == "127.0.0.1":
            return real(host, port, *more, **named)
        if host not in NAMES:
            raise socket.gaierror("no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (NAMES[host], port))]

    def create(address: tuple[str, int], timeout: float) -> socket.socket:
        went.append(address)
        return connect(("127.0.0.1", server.server_port), timeout)

    monkeypatch.setattr("socket.getaddrinfo", look_up)
    monkeypatch.setattr("socket.create_connection", create)
    monkeypatch.setattr(links, "BYTES_MAX", 64)
    yield went
    server.shutdown()
    server.server_close()


def test_a_link_leads_to_the_address_that_was_checked(reached: list[tuple[str, int]]) -> None:
    fetch = fetch_from(("http://images.example",))
    assert fetch("http://images.example/a.png?size=1") == b"image"
    assert reached == [(PUBLIC, 80)]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://images.example/moved.png", "302"),
        ("http://images.example/none.png", "404"),
        ("http://images.example/big.png", "more than 64 bytes"),
        ("http://inside.example/a.png", "private"),
        ("http://metadata.example/a.png", "private"),
        ("http://gone.example/a.png", "does not answer"),
        ("http://other.example/a.png", "not allowed"),
        ("http://user@images.example/a.png", "not allowed"),
        ("http://images.example:8080/a.png", "not allowed"),
        ("http://images.example.evil.example/a.png", "not allowed"),
        ("http://images.example\\@inside.example/a.png", "not allowed"),
        ("http://secure.example/a.png", "not allowed"),
        ("ftp://images.example/a.png", "not allowed"),
        ("http:///a.png", "not allowed"),
        ("http://images.example/\u00e9.png", "does not answer"),
    ],
)
def test_a_link_to_anything_else_is_refused(
    url: str, why: str, reached: list[tuple[str, int]]
) -> None:
    hosts = ("images.example", "inside.example", "metadata.example", "gone.example")
    fetch = fetch_from((*(f"http://{host}" for host in hosts), "secure.example"))
    with pytest.raises(FetchRefused, match=why):
        fetch(url)
    assert {address for address, _ in reached} <= {PUBLIC}
    assert INSIDE not in why


def test_without_hosts_no_link_is_followed(reached: list[tuple[str, int]]) -> None:
    with pytest.raises(FetchRefused, match="not allowed"):
        fetch_from(())("https://images.example/a.png")
    assert not reached
