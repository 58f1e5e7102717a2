"""Choosing a port: the wished one or an error, else the next free one."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from controlplane.embedded.ports import PORT_DEFAULT, choose_ports, is_free, serves
from controlplane.embedded.processes import ServerError

HOST = "127.0.0.1"


@contextmanager
def listener(port: int = 0) -> Iterator[int]:
    with socket.create_server((HOST, port)) as server:
        yield server.getsockname()[1]


def test_a_wished_port_in_use_is_named() -> None:
    with listener() as port, pytest.raises(ServerError, match=f"Port {port} is in use"):
        choose_ports(HOST, port, 1)


def test_without_a_wish_the_next_free_port_is_taken() -> None:
    (first,) = choose_ports(HOST, None, 1)
    assert first >= PORT_DEFAULT
    with listener(first):
        assert choose_ports(HOST, None, 1)[0] > first
    assert is_free(HOST, first)


def test_several_ports_are_free_and_in_a_row() -> None:
    first, second = choose_ports(HOST, None, 2)
    assert second == first + 1
    with listener(second):
        assert first not in choose_ports(HOST, None, 2)
        with pytest.raises(ServerError, match=f"Port {second} is in use"):
            choose_ports(HOST, first, 2)


def test_a_port_where_nobody_answers_does_not_serve() -> None:
    with listener() as port:
        pass
    assert not serves(HOST, port, models_min=0)
