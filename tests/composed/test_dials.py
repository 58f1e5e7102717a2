"""What a worker dials: how long it takes, what cannot be reached, whom a map names."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings
from redis import Redis

from controlplane.composed.livemap import dials
from controlplane.composed.livemap.dials import DialTarget, dial, outside_dial
from controlplane.core import outbound
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.jobs.lives import Life, lives_read
from controlplane.slos.models import EVERYONE
from controlplane.slos.services import channel_add
from tests.support.loopback import HOST, reserve_port
from tests.support.people import make_cast
from tests.support.provider import oidc_provider
from tests.support.servers import redis_door
from tests.support.tls import make_authority, tls_front
from tests.support.waiting import WAIT_S_MAX, wait_for

SECRET = "umbrella-orchard-token"


@pytest.fixture
def listener() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def door(database: str) -> Iterator[Redis]:
    with redis_door() as door:
        door.flushall()
        yield door
        door.flushall()


def _lives(door: Redis) -> dict[str, Life]:
    return {f"{each.life.kind} {each.life.name}".strip(): each.life for each in lives_read(door)}


def test_what_listens_is_reached(listener: int) -> None:
    found = dial(DialTarget(dials.COLLECTOR, "c", HOST, listener))
    assert found.problem == "" and found.connect_ms is not None and found.tls_ms is None


def test_what_does_not_listen_has_an_error_in_words() -> None:
    found = dial(DialTarget(dials.COLLECTOR, "c", HOST, reserve_port()))
    assert "refused" in found.problem and found.connect_ms is None


def test_an_address_of_our_own_network_is_not_dialled_for_a_tenant(listener: int) -> None:
    found = dial(DialTarget(dials.WEBHOOK, "w", HOST, listener, private=False))
    assert "private address" in found.problem


def test_slow_names_of_tenants_hold_up_nobody_else(
    listener: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deliveries and our own dials have other threads for their look-ups."""
    answered, real = threading.Event(), socket.getaddrinfo

    def look_up(host: str, *given: Any, **named: Any) -> Any:
        if host.startswith("slow"):
            answered.wait(WAIT_S_MAX)
        return real(HOST, *given, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(outbound, "LOOK_UP_S_MAX", 0.05)
    try:
        for number in range(outbound.LOOK_UPS_MAX + dials.DIALLERS):
            slow = DialTarget(dials.WEBHOOK, "w", f"slow{number}", listener)
            assert "resolved" in dial(slow).problem
        monkeypatch.setattr(outbound, "LOOK_UP_S_MAX", WAIT_S_MAX / 2)
        assert dial(DialTarget(dials.PROVIDER, "p", "p", listener)).problem == ""
        assert outbound.public_address("d", listener, private=True) == HOST
    finally:
        answered.set()


def test_who_speaks_no_tls_where_it_should_is_not_reached(
    listener: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dials, "DIAL_S_MAX", 0.2)
    found = dial(DialTarget(dials.PROVIDER, "p", HOST, listener, secure=True))
    assert found.connect_ms is not None and found.tls_ms is None and found.problem


def test_a_collector_of_an_authority_of_its_own_is_reached(tmp_path: Path, listener: int) -> None:
    """Its exporter is told whom to believe; of all others we are."""
    with tls_front(make_authority(tmp_path), listener) as port:
        collector, provider = (
            DialTarget(kind, "x", "localhost", port, secure=True)
            for kind in (dials.COLLECTOR, dials.PROVIDER)
        )
        wait_for(lambda: dial(collector).tls_ms is not None, "collector")
        assert "certificate" in dial(provider).problem


class _Measured:
    """A context of TLS that notes what it was told, and does nothing."""

    told: list[tuple[bool, ssl.VerifyMode, str]] = []
    check_hostname, verify_mode = True, ssl.CERT_REQUIRED

    def wrap_socket(self, wire: socket.socket, server_hostname: str) -> socket.socket:
        self.told.append((self.check_hostname, self.verify_mode, server_hostname))
        return wire


def test_postgres_is_asked_whether_it_has_tls_which_is_measured_and_not_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ssl, "create_default_context", _Measured)
    monkeypatch.setattr(_Measured, "told", [])
    with socket.create_server((HOST, 0)) as server, ThreadPoolExecutor(1) as thread:
        server.settimeout(WAIT_S_MAX)

        def answer() -> bytes:
            wire, _ = server.accept()
            with wire:
                asked = wire.recv(len(dials.SSL_REQUEST))
                wire.sendall(dials.SSL_YES)
                return asked

        asked = thread.submit(answer)
        found = dial(DialTarget(dials.POSTGRES, "", HOST, server.getsockname()[1]))
        assert asked.result() == dials.SSL_REQUEST
    assert found.tls_ms is not None
    assert _Measured.told == [(False, ssl.CERT_NONE, HOST)], "its own clients check"


def test_databases_and_everyones_receivers_are_dialled_and_no_secret_is_kept(
    door: Redis, listener: int
) -> None:
    cast = make_cast()
    address = f"http://{HOST}:{listener}/hook?token={SECRET}"
    with override_settings(
        WEBHOOKS_PRIVATE=True,
        OIDC_PROVIDERS=[oidc_provider(f"http://{HOST}:{listener}/realm")],
        TRACES_ENDPOINT=f"http://user:{SECRET}@{HOST}:{listener}/v1/traces",
    ):
        for organization in (EVERYONE, cast.acme.id):
            channel_add(actor=OPERATOR, organization=organization, kind="webhook", address=address)
        assert outside_dial() == 5
        place = f"{HOST}:{listener}"
        found = _lives(door)
        assert set(found) == {
            "postgres", "redis", f"webhook {place}", f"identity {place}", f"collector {place}",
        }  # fmt: skip
        assert SECRET not in repr(found) and settings.REDIS_PASSWORD not in repr(found)
    outside_dial()
    assert set(_lives(door)) == {"postgres", "redis", f"webhook {place}"}, "it is dialled no more"
