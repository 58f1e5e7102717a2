"""The client's round-trip time: read of real sockets, and not known where there is none."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec
import pytest

from controlplane.gateway.http.round_trip import UNKNOWN_US, RoundTrip
from controlplane.kernel.spans import INDEX, STAGES, unpack_spans
from tests.support.serving import Serving


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        server, _ = listener.accept()
        with server:
            yield server, client


def test_a_tcp_connection_has_one_and_keeps_it_when_it_is_closed(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    server, client = pair
    client.sendall(b"x")
    assert server.recv(1) == b"x"
    found = RoundTrip(server)
    assert found.us == UNKNOWN_US
    found.look()
    known = found.us
    assert known > 0
    server.close()
    found.look()
    assert found.us == known
    late = RoundTrip(server)
    late.look()
    assert late.us == UNKNOWN_US


def test_a_unix_socket_and_a_server_that_shows_none_have_none() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        for found in (RoundTrip(one), RoundTrip()):
            found.look()
            assert found.us == UNKNOWN_US


async def test_it_is_recorded_outside_the_stages_of_a_whole_answer_and_of_a_stream(
    serving: Serving,
) -> None:
    for stream in (False, True):
        await serving.chat(stream=stream)
    await serving.under_test.at_rest()
    for record in serving.under_test.recorder.records:
        assert record.client_rtt_us > 0
        line = msgspec.json.decode(record.receipt)["line"]
        assert line == {"rtt_us": record.client_rtt_us, "of": "client"}
        times = unpack_spans(record.spans)
        assert sum(times[INDEX[stage]][1] for stage, _, _ in STAGES) <= record.total_us


async def test_behind_a_trusted_proxy_it_is_the_proxys_and_no_clients(serving: Serving) -> None:
    serving.under_test.world.trusted_proxies = ("127.0.0.1",)
    await serving.chat()
    await serving.under_test.at_rest()
    (record,) = serving.under_test.recorder.records
    assert record.client_rtt_us == UNKNOWN_US
    line = msgspec.json.decode(record.receipt)["line"]
    assert line["of"] == "proxy" and line["rtt_us"] > 0
