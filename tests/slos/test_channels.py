"""A message to an address that is wrong, or to a server that is slow: it fails, in bounded time."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from django.conf import settings
from pytest import MonkeyPatch

from controlplane.slos import channels
from controlplane.slos.channels import NotDelivered, post


@pytest.fixture(autouse=True)
def private(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "WEBHOOKS_PRIVATE", True)


def test_an_address_that_cannot_be_written_down_is_not_delivered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for address in (f"http://{'a' * 64}.example/", f"http://127.0.0.1:{port}/\u00fc"):
            with pytest.raises(NotDelivered):
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
    monkeypatch.setattr(channels, "EXCHANGE_S_MAX", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_drip, args=(server,), daemon=True).start()
        began = time.monotonic()
        with pytest.raises(NotDelivered):
            post(f"http://127.0.0.1:{server.getsockname()[1]}/", b"{}", {})
        # All of it takes five seconds.
        assert time.monotonic() - began < 4.5
