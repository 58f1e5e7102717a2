"""An agent and a control plane that is away: its nodes go on."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from inference.agent.control import ControlAway, ControlPlane
from inference.contract.hosts import HostReport, Inventory
from tests.support.loopback import HOST
from tests.support.waiting import WAIT_S_MAX

TOO_SHORT = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{"


@pytest.mark.parametrize("answer", [b"no HTTP\r\n\r\n", TOO_SHORT])
def test_half_an_answer_does_not_end_the_agent(answer: bytes) -> None:
    with socket.create_server((HOST, 0)) as server, ThreadPoolExecutor(1) as thread:
        server.settimeout(WAIT_S_MAX)

        def serve() -> None:
            wire, _ = server.accept()
            with wire:
                wire.recv(1 << 16)
                wire.sendall(answer)

        served = thread.submit(serve)
        control = ControlPlane(f"http://{HOST}:{server.getsockname()[1]}")
        with pytest.raises(ControlAway):
            control.report(HostReport(inventory=Inventory()))
        served.result(WAIT_S_MAX)
