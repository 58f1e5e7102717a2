"""A request that an ASGI application answers: pages, probes, whatever is not the gateway's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from uvicorn._types import HTTPScope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from controlplane.bridge.http.ending import Ending
from controlplane.bridge.http.head import AskedUrl, head_bytes

if TYPE_CHECKING:
    from controlplane.bridge.http.connection import SocketProtocol


class AsgiExchange(RequestResponseCycle):
    """uvicorn's own, which also closes as the connection does."""

    def __init__(self, connection: SocketProtocol, *, keep_alive: bool) -> None:
        super().__init__(
            scope=connection.scope,
            transport=Ending(connection.transport, connection.end),  # type: ignore[arg-type]
            flow=connection.flow,
            logger=connection.logger,
            access_logger=connection.access_logger,
            access_log=connection.access_log,
            default_headers=connection.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=connection.expect_100_continue,
            keep_alive=keep_alive,
            on_response=connection.on_response_complete,
        )
        self._connection = connection
        self._unchunked = connection.scope["http_version"] == "1.0"

    @property
    def held_bytes(self) -> int:
        return head_bytes(list(self.scope["headers"])) + len(self.body)

    def start(self) -> None:
        self._connection.run_asgi(self)

    def feed(self, data: bytes) -> None:
        self.body += data
        if len(self.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        self.message_event.set()

    def feed_end(self) -> None:
        self.more_body = False
        self.message_event.set()

    def leave(self) -> None:
        """The client has gone."""
        self.disconnected = True
        self.message_event.set()

    def send(self, message: Any) -> Awaitable[None]:  # type: ignore[override]
        if not self.response_started:
            self._begin()
        elif self._unchunked:
            # Closing ends the body, so that no length is owed.
            self.expected_content_length = len(message.get("body", b""))
        return super().send(message)

    async def send_500_response(self) -> None:
        """The application has failed before it answered."""
        self.response_started = self.response_complete = True
        self._connection.fail()

    def _begin(self) -> None:
        if self._unchunked:
            self.chunked_encoding = False
        if self.more_body:
            self.keep_alive = False
            self.transport.close = self._connection.linger  # type: ignore[method-assign]
            self._connection.hear_no_more()


def scope_of(connection: SocketProtocol, url: AskedUrl) -> HTTPScope:
    """What ASGI tells of the request whose head was read last."""
    root = connection.root_path
    return {
        "type": "http",
        "asgi": {"version": connection.asgi_version, "spec_version": "2.3"},
        "http_version": connection.parser.get_http_version(),
        "server": connection.server,
        "client": connection.client,
        "scheme": connection.scheme or "http",
        "method": connection.parser.get_method().decode("ascii"),
        "root_path": root,
        "path": root + url.path,
        "raw_path": root.encode("ascii") + url.raw_path,
        "query_string": url.query,
        "headers": connection.headers,
        "state": connection.app_state.copy(),
    }
