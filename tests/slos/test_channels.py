"""A message to an address that is wrong, or to a server that is slow: it fails, in bounded time."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

import pytest
from django.conf import settings
from pytest import MonkeyPatch

from controlplane.core import outbound
from controlplane.core.outbound import NotReached
from controlplane.slos.channels.delivery import post


@pytest.fixture(autouse=True)
def private(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "WEBHOOKS_PRIVATE", True)


def test_an_address_that_cannot_be_written_down_is_not_delivered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for address in (f"http://{'a' * 64}.example/", f"http://127.0.0.1:{port}/\u00fc"):
            with pytest.raises(NotReached):
                post(address, b"{}", {})


def _drip(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"HTTP/1.1 503 no\r\n")
        for _ in range(100):
            try:
                connection.sendall(b"a")
            except OSError:
                return
            time.sleep(0.05)


def test_a_server_that_drips_is_cut_off(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "EXCHANGE_S_MAX", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_drip, args=(server,), daemon=True).start()
        began = time.monotonic()
        with pytest.raises(NotReached):
            post(f"http://127.0.0.1:{server.getsockname()[1]}/", b"{}", {})
        # All of it takes five seconds.
        assert time.monotonic() - began < 4.5


def test_a_tls_handshake_that_drips_is_cut_off(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "EXCHANGE_S_MAX", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=drip_a_record, args=(server,), daemon=True).start()
        began = time.monotonic()
        with pytest.raises(NotReached):
            post(f"https://127.0.0.1:{server.getsockname()[1]}/", b"{}", {})
        assert time.monotonic() - began < 4.5


def test_a_name_that_is_looked_up_for_ever_is_given_up(monkeypatch: MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(outbound, "LOOK_UP_S_MAX", 0.1)
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: answered.wait(30))
    with pytest.raises(NotReached, match="cannot be resolved"):
        post("https://slow.example/", b"{}", {})
    answered.set()


def drip_a_record(server: socket.socket) -> None:
    """The head of a TLS record that is long, then a byte of it now and then."""
    wire, _ = server.accept()
    with wire, suppress(OSError):
        wire.sendall(bytes([22, 3, 3, 0x10, 0]))
        for _ in range(100):
            wire.sendall(b"\0")
            time.sleep(0.05)
