"""A whole gateway over real sockets for tests: HTTP in, nodes dialled in, ports in memory."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import uvicorn

from controlplane.bridge.fleet.handshakes import Handshakes
from controlplane.bridge.fleet.socket import NodeConsumer
from controlplane.bridge.http.links import fetch_from
from controlplane.gateway.app_state import AppState
from controlplane.gateway.http.app import GatewayApp
from controlplane.gateway.nodes.limits import LinkLimits
from controlplane.gateway.nodes.registry import Fleet
from inference.contract.frames import FRAME_BYTES_MAX, Report
from tests.support.asgi import Server
from tests.support.fleet import MODEL, QUICK, TICKET_KEY, MemoryPort
from tests.support.memory_ledger import MemoryLedger
from tests.support.ports import (
    KEY,
    MemoryClaims,
    MemoryContents,
    MemoryHygiene,
    MemoryKeys,
    MemoryLimiter,
    MemoryRecorder,
    MemoryStandings,
    NoBatches,
    WordSafety,
    make_snapshot,
)
from tests.support.waiting import until


class GatewayUnderTest:
    """The running gateway and the fakes behind it."""

    def __init__(
        self,
        limits: LinkLimits = QUICK,
        *,
        limiter: MemoryLimiter | None = None,
        ledger: MemoryLedger | None = None,
    ) -> None:
        self.keys = MemoryKeys(make_snapshot(MODEL))
        self.limiter = limiter or MemoryLimiter()
        self.ledger = ledger or MemoryLedger()
        self.claims = MemoryClaims()
        self.standings = MemoryStandings()
        self.recorder = MemoryRecorder()
        self.safety = WordSafety()
        self.waste = MemoryHygiene()
        self.image_hosts: tuple[str, ...] = ()
        self.contents = MemoryContents()
        self.fleet_port = MemoryPort()
        self.handshakes = Handshakes()
        self.fleet = Fleet(
            "test",
            ticket_keys=(TICKET_KEY,),
            on_report=self._settle,
            port=self.fleet_port,
            limits=limits,
        )
        self.world = AppState(
            keys=self.keys,
            limiter=self.limiter,
            ledger=self.ledger,
            claims=self.claims,
            standings=self.standings,
            batches=NoBatches(),
            recorder=self.recorder,
            safety=self.safety,
            waste=self.waste,
            fetch=self._fetch,
            contents=self.contents,
            fleet=self.fleet,
            region="local",
            node_header=True,
        )
        self._gateway = GatewayApp(self.world)
        self._consumer = NodeConsumer.as_asgi(gateway=lambda: self)
        self.port = 0

    def _fetch(self, url: str) -> bytes:
        return fetch_from(self.image_hosts)(url)

    @property
    def url(self) -> str:
        """Base URL of the API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def fleet_url(self) -> str:
        """Where nodes dial."""
        return f"ws://127.0.0.1:{self.port}/fleet"

    def gateway_of(self, path: str) -> GatewayApp:
        """It answers every path."""
        return self._gateway

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Sockets are of nodes."""
        await self._consumer(scope, receive, send)

    async def _settle(self, report: Report, gateway: str) -> bool:
        return await self.ledger.settle_report(report)

    async def served(self) -> None:
        """Wait until the model can be served."""
        await until(lambda: self.fleet.candidates(MODEL))

    async def at_rest(self) -> None:
        """Wait until nothing is open anywhere, failing when something stays."""
        await until(lambda: not self.ledger.open)
        await until(lambda: self.limiter.under_way == 0)
        await until(lambda: not any(link.account.active for link in self.fleet.nodes().values()))
        await until(lambda: self.fleet.reports.live_calls == 0)


@contextlib.asynccontextmanager
async def running_gateway(under_test: GatewayUnderTest) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve it on loopback; the client carries the key."""
    config = uvicorn.Config(
        under_test,
        http="controlplane.bridge.http.connection:SocketProtocol",
        ws="controlplane.bridge.fleet.frames:FrameProtocol",
        ws_max_size=FRAME_BYTES_MAX + 1024,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        # As the product is run: the peer is the socket, whatever its headers say.
        proxy_headers=False,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    under_test.port = listener.getsockname()[1]
    server = Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await until(lambda: server.started)
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx2.AsyncClient(base_url=under_test.url, headers=headers) as client:
            yield client
    finally:
        await under_test.fleet.close()
        server.should_exit = True
        await task
        await under_test.world.drain()
