"""The `/live` socket: who may watch, for how long, and how many places that takes."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from channels.auth import AuthMiddlewareStack
from channels.db import database_sync_to_async
from channels.routing import URLRouter
from django.conf import settings
from django.db import connections
from django.test import Client

from controlplane.core.permissions import Role, organization_scope
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.models import Membership, User
from controlplane.tenants.people.services import membership_set
from frontend.overview import live
from frontend.overview.live import LiveConsumer, websocket_urlpatterns
from frontend.shared.access import SESSION_KEY
from tests.browser.history import write_history
from tests.support.orm import orm
from tests.support.people import Cast, make_cast
from tests.support.waiting import until

WAIT_S_MAX = 60.0
FAST_S = 0.02
# asgiref gives its helpers for tests no types.
COMMUNICATOR: Any = ApplicationCommunicator


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


@pytest.fixture(autouse=True)
async def thread_of_channels(database: str) -> AsyncIterator[None]:
    """The thread that Channels keeps for the ORM lets go of this test's database."""
    yield
    await database_sync_to_async(connections.close_all)()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at the session again every time."""
    monkeypatch.setattr(live, "RECHECK_S", 0.0)
    monkeypatch.setattr(live, "PERIODS_S", {60: FAST_S})


def _sign_in(user: User, organization: object | None = None) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    if organization is not None:
        session = client.session
        session[SESSION_KEY] = str(organization)
        session.save()
    return client


sign_in = orm(_sign_in)


def socket_of(client: Client | None, query: str = "range=15m") -> Any:
    """A socket of this browser, not yet connected."""
    name = settings.SESSION_COOKIE_NAME
    cookie = f"{name}={client.cookies[name].value}" if client else ""
    scope = {
        "type": "websocket",
        "path": "/live",
        "query_string": query.encode(),
        "headers": [(b"cookie", cookie.encode())],
        "subprotocols": [],
    }
    return COMMUNICATOR(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)), scope)


@asynccontextmanager
async def watching(client: Client | None, **more: str) -> AsyncIterator[Any]:
    """A socket that was accepted, until it is left."""
    socket = socket_of(client, **more)
    await connect(socket)
    yield socket
    await socket.send_input({"type": "websocket.disconnect", "code": 1000})
    await socket.wait(WAIT_S_MAX)


async def connect(socket: Any) -> None:
    await socket.send_input({"type": "websocket.connect"})
    assert (await socket.receive_output(WAIT_S_MAX))["type"] == "websocket.accept"


async def figures_of(socket: Any) -> dict[str, object]:
    """The next figures sent."""
    figures: dict[str, object] = json.loads((await socket.receive_output(WAIT_S_MAX))["text"])
    return figures


async def code_of(socket: Any) -> int:
    """The code the socket is closed with, whatever is sent before."""
    while True:
        event = await socket.receive_output(WAIT_S_MAX)
        if event["type"] == "websocket.close":
            return int(event["code"])


async def no_places() -> None:
    await until(lambda: not LiveConsumer.places, WAIT_S_MAX)


async def test_a_member_sees_figures(cast: Cast) -> None:
    async with watching(await sign_in(cast.alice)) as socket:
        assert "cells" in await figures_of(socket)
        assert LiveConsumer.places == {cast.alice.id: 1}
    await no_places()


async def test_figures_are_of_the_part_that_the_page_is_about(cast: Cast) -> None:
    key = (await orm(apikey_create)(actor=cast.alice, project=cast.project, label="owl")).key
    written = len(await orm(write_history)(cast, key, "tiny"))
    counts = {}
    for part in (f"model=tiny&project={cast.project.id.hex}", "model=large", "project=nonsense"):
        async with watching(await sign_in(cast.alice), query=f"range=6h&{part}") as socket:
            cells: Any = (await figures_of(socket))["cells"]
            counts[part] = int(cells["requests"][1])
    assert list(counts.values()) == [written, 0, written]
    await no_places()


@pytest.mark.parametrize("query", ["range=15m", "range=nonsense"])
async def test_a_stranger_is_told_so_and_takes_no_place(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(live, "WATCHERS_MAX", 0)
    async with watching(None, query=query) as socket:
        assert await code_of(socket) == 4401
        assert not LiveConsumer.places


async def test_a_range_that_stands_still_is_not_live(cast: Cast) -> None:
    async with watching(await sign_in(cast.alice), query="range=nonsense") as socket:
        assert await code_of(socket) == 4400


async def test_one_user_may_not_take_all_places(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "WATCHERS_PER_USER_MAX", 1)
    alice, bob = await sign_in(cast.alice), await sign_in(cast.bob)
    async with watching(alice), watching(alice) as second, watching(bob) as other:
        assert await code_of(second) == 4429
        assert "cells" in await figures_of(other)
    await no_places()


async def test_places_are_bounded_in_all(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "WATCHERS_MAX", 1)
    alice, bob = await sign_in(cast.alice), await sign_in(cast.bob)
    async with watching(alice), watching(bob) as second:
        assert await code_of(second) == 4429
    await no_places()


async def test_a_server_that_drops_the_socket_gets_the_place_back(cast: Cast) -> None:
    socket = socket_of(await sign_in(cast.alice))
    await connect(socket)
    assert LiveConsumer.places
    socket.stop()
    await no_places()


@pytest.mark.usefixtures("hurried")
async def test_a_watch_ends_with_its_session(cast: Cast) -> None:
    client = await sign_in(cast.alice)
    async with watching(client) as socket:
        assert "cells" in await figures_of(socket)
        await orm(client.logout)()
        assert await code_of(socket) == 4401
        await no_places()


@pytest.mark.usefixtures("hurried")
async def test_a_removed_member_is_not_shown_another_organization(cast: Cast) -> None:
    """Bob stays a member of Other, which is where pages would take him."""
    await orm(membership_set)(
        actor=cast.charlie, organization=cast.other, user=cast.bob, role=Role.DEVELOPER
    )
    client = await sign_in(cast.bob, cast.acme.id)
    async with watching(client) as socket:
        assert "cells" in await figures_of(socket)
        await orm(_remove)(cast.acme.id, cast.bob.id)
        assert await code_of(socket) == 4401
        await no_places()


@pytest.mark.usefixtures("hurried")
async def test_another_tab_may_look_elsewhere(cast: Cast) -> None:
    """The socket goes on for the organization that its page shows."""
    await orm(membership_set)(
        actor=cast.charlie, organization=cast.other, user=cast.bob, role=Role.DEVELOPER
    )
    client = await sign_in(cast.bob, cast.acme.id)
    async with watching(client) as socket:
        assert "cells" in await figures_of(socket)
        await orm(_choose)(client, cast.other.id)
        await asyncio.sleep(10 * FAST_S)
        assert LiveConsumer.places == {cast.bob.id: 1}


def _choose(client: Client, organization: object) -> None:
    session = client.session
    session[SESSION_KEY] = str(organization)
    session.save()


def _remove(organization: uuid.UUID, user: uuid.UUID) -> None:
    with organization_scope([organization]):
        Membership.objects.filter(organization_id=organization, user_id=user).delete()
