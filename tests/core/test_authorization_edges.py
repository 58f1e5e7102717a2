"""The matrix where Django is not: the gateway's paths, and the sockets of pages and of nodes."""

from __future__ import annotations

import ast
import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import pytest
from asgiref.testing import ApplicationCommunicator
from channels.auth import AuthMiddlewareStack
from channels.db import database_sync_to_async
from channels.routing import URLRouter
from django.conf import settings
from django.db import connections
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from controlplane.probes import PATHS as PROBES
from frontend.overview.live import NOT_ALLOWED, websocket_urlpatterns
from tests.core.callers import ALL, ANONYMOUS, SESSIONS, TOKENS
from tests.core.edges import (
    CLIENT_EDGES,
    EDGES,
    GATEWAY,
    GATEWAY_NOT_OFFERED,
    GATEWAY_PUBLIC,
    SOCKETS,
)
from tests.core.samples import Things, make_things
from tests.support.fleet import CREDENTIAL
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.orm import orm
from tests.support.ports import KEY
from tests.support.raw import told

FOLDER = Path(__file__).parents[2] / "controlplane"
WAIT_S_MAX = 60.0
# asgiref gives its helpers for tests no types.
COMMUNICATOR: Any = ApplicationCommunicator
Headers = list[tuple[bytes, bytes]]


@pytest.fixture
async def things(database: str) -> AsyncIterator[Things]:
    """An installation, and then no connection left of the thread that Channels keeps."""
    yield await orm(make_things)()
    await database_sync_to_async(connections.close_all)()


def headers_of(things: Things, caller: str) -> Headers:
    """What this caller sends: a session's cookie or a bearer token."""
    if caller in TOKENS:
        return [(b"authorization", f"Bearer {things.callers.token(caller)}".encode())]
    client = things.callers.client(caller)
    name = settings.SESSION_COOKIE_NAME
    return [(b"cookie", f"{name}={client.cookies[name].value}".encode())] if client.cookies else []


def literals(path: Path, pattern: str) -> set[str]:
    """Texts in a file's code that are such paths."""
    return {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(pattern, node.value)
    }


def test_every_path_outside_django_is_declared() -> None:
    gateway = (FOLDER / "gateway").rglob("*.py")
    served = set().union(*(literals(path, r"/v1/[\w/.-]+") for path in gateway))
    declared = {path for _, path in GATEWAY} | GATEWAY_PUBLIC | GATEWAY_NOT_OFFERED
    assert served and served <= declared
    assert literals(FOLDER / "asgi.py", r"/[\w/-]+") | PROBES == EDGES | CLIENT_EDGES
    assert {f"/{entry.pattern}" for entry in websocket_urlpatterns} == SOCKETS - {"/fleet"}


async def status_of(gateway: GatewayUnderTest, method: str, path: str, headers: Headers) -> int:
    """The gateway's answer to an empty request."""
    lines = [b"%b: %b\r\n" % header for header in headers]
    asked = f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n".encode()
    found = await told(gateway.port, asked + b"".join([*lines, b"Connection: close\r\n\r\n{}"]))
    assert msgspec.json.decode(found[0].body)
    return found[0].status


async def test_only_an_inference_key_opens_the_gateway(things: Things) -> None:
    gateway = GatewayUnderTest()
    async with running_gateway(gateway):
        for method, path in GATEWAY:
            found = {}
            for caller in ALL:
                headers = await orm(headers_of)(things, caller)
                if caller == "inference key":
                    headers = [(b"authorization", f"Bearer {KEY}".encode())]
                found[caller] = await status_of(gateway, method, path, headers)
            # An empty body is no request, and nothing is stored: only who is let in hears that.
            heard = {404} if "/resp_" in path else {200, 400}
            assert found.pop("inference key") in heard, path
            assert found == dict.fromkeys(found, 401), path
        for path in GATEWAY_PUBLIC:
            assert await status_of(gateway, "GET", path, []) == 200
        for path in GATEWAY_NOT_OFFERED:
            assert await status_of(gateway, "POST", path, []) == 404


async def closed_with(things: Things, caller: str) -> int | None:
    """The code with which `/live` refuses a caller; None for who is shown figures."""
    scope = {
        "type": "websocket",
        "path": "/live",
        "query_string": b"range=15m",
        "headers": await orm(headers_of)(things, caller),
        "subprotocols": [],
    }
    socket = COMMUNICATOR(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)), scope)
    await socket.send_input({"type": "websocket.connect"})
    assert (await socket.receive_output(WAIT_S_MAX))["type"] == "websocket.accept"
    event = await socket.receive_output(WAIT_S_MAX)
    await socket.send_input({"type": "websocket.disconnect", "code": 1000})
    await socket.wait(WAIT_S_MAX)
    return int(event["code"]) if event["type"] == "websocket.close" else None


async def test_figures_are_for_members(things: Things) -> None:
    found = {caller: await closed_with(things, caller) for caller in ALL}
    assert found == {name: None if name in SESSIONS else NOT_ALLOWED for name in ALL}


async def dialled(url: str, headers: Headers) -> int:
    """The status with which the socket of nodes answers a handshake."""
    texts = [(name.decode(), value.decode()) for name, value in headers]
    try:
        async with connect(url, additional_headers=texts, proxy=None):
            return HTTPStatus.SWITCHING_PROTOCOLS
    except InvalidStatus as refused:
        return refused.response.status_code


async def test_only_a_node_reaches_the_fleet(things: Things) -> None:
    gateway = GatewayUnderTest()
    async with running_gateway(gateway):
        for caller in ALL:
            headers = await orm(headers_of)(things, caller)
            assert (caller == ANONYMOUS) == (not headers)
            assert await dialled(gateway.fleet_url, headers) == HTTPStatus.UNAUTHORIZED, caller
        node = [(b"authorization", f"Bearer {CREDENTIAL}".encode())]
        assert await dialled(gateway.fleet_url, node) == HTTPStatus.SWITCHING_PROTOCOLS
