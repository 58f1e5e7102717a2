"""The `/live` socket: the Overview's figures as JSON while somebody looks. It accepts no data.

The origin is checked before this consumer is reached (`asgi.py`); session and membership are looked
at here, first and then every few seconds, so that nobody goes on watching who signed out or was
removed.
"""

import asyncio
import contextlib
import json
import uuid
from collections import Counter
from functools import partial
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qsl

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth import get_user
from django.db import Error
from django.http import HttpRequest
from django.urls import path
from django.utils import timezone
from django.utils.module_loading import import_string

from controlplane.core.permissions import Action
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.tenants.models import User
from frontend.overview.reads import RollingOverview
from frontend.shared.access import SESSION_KEY, find_viewer
from frontend.shared.asked import Asked, asked_from
from frontend.shared.filters import range_from

WATCHERS_MAX = 64
WATCHERS_PER_USER_MAX = 8
RECHECK_S = 5.0
# A longer range moves more slowly and costs more to read.
PERIODS_S = {60: 1.0, 300: 5.0, 900: 15.0}
PERIOD_LONG_S = 30.0
NOT_ALLOWED, TOO_MANY, NOT_LIVE, DATABASE_AWAY = 4401, 4429, 4400, 1011


class Watched(NamedTuple):
    """Who looks at which organization."""

    user: uuid.UUID
    organization: uuid.UUID
    shared: bool


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """One watcher of one range; its place among the watchers is its task's."""

    places: ClassVar[Counter[uuid.UUID]] = Counter()
    task: asyncio.Task[None] | None = None

    async def __call__(self, *arguments: Any) -> None:
        """Serve one socket; however that ends, nobody goes on reading for it."""
        try:
            await super().__call__(*arguments)
        finally:
            if self.task is not None:
                self.task.cancel()

    async def connect(self) -> None:
        """Begin to watch, for a signed-in member with a relative range."""
        watched = await database_sync_to_async(self._watched)(None)
        # A refused socket is accepted too: a browser learns the code of no other.
        await self.accept()
        within, complaint = range_from(self._query(), timezone.now())
        if watched is None:
            await self.close(code=NOT_ALLOWED)
        elif complaint or not within.relative:
            await self.close(code=NOT_LIVE)
        elif not self._has_place(watched.user):
            await self.close(code=TOO_MANY)
        else:
            LiveConsumer.places[watched.user] += 1
            self.task = asyncio.create_task(self._watch(watched), name="live overview")
            # Called even where the task is cancelled before its first step.
            self.task.add_done_callback(partial(_give_place_back, watched.user))

    async def disconnect(self, code: int) -> None:
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Nothing is expected from a watcher."""

    def _query(self) -> dict[str, str]:
        return dict(parse_qsl(self.scope["query_string"].decode("latin-1")))

    def _has_place(self, user: uuid.UUID) -> bool:
        places = LiveConsumer.places
        return places[user] < WATCHERS_PER_USER_MAX and places.total() < WATCHERS_MAX

    async def _watch(self, watched: Watched) -> None:
        try:
            code = await self._send_figures(watched)
        except Error:
            code = DATABASE_AWAY
        await self.close(code=code)

    async def _send_figures(self, watched: Watched) -> int:
        """Send whatever changes until the right to see it ends; returns the code to close with."""
        loop = asyncio.get_running_loop()
        rolling = RollingOverview(watched.organization, shared=watched.shared)
        checked = loop.time()
        sent = ""
        while True:
            if loop.time() - checked > RECHECK_S:
                if await database_sync_to_async(self._watched)(watched.organization) != watched:
                    return NOT_ALLOWED
                checked = loop.time()
            # What cannot be read of it was told by the page that opened this socket.
            asked = asked_from(self._query(), timezone.now())
            text = await database_sync_to_async(self._figures)(rolling, asked)
            if text and text != sent:
                await self.send(text_data=text)
                sent = text
            await asyncio.sleep(PERIODS_S.get(asked.within.step_s, PERIOD_LONG_S))

    def _watched(self, organization: uuid.UUID | None) -> Watched | None:
        """What the session, read anew, may watch: the organization if it can, else another."""
        request = HttpRequest()
        store = import_string(f"{settings.SESSION_ENGINE}.SessionStore")
        request.session = store(self.scope["session"].session_key)
        user = get_user(request)
        if not isinstance(user, User) or not user.is_active:
            return None
        wanted = str(organization) if organization else request.session.get(SESSION_KEY)
        viewer = find_viewer(user, wanted)
        if not viewer.may(Action.ORGANIZATION_VIEW):
            return None
        return Watched(user.id, viewer.organization.id, viewer.sees_shared)

    def _figures(self, rolling: RollingOverview, asked: Asked) -> str:
        try:
            return json.dumps(rolling.read(asked, timezone.now()).live(), separators=(",", ":"))
        except TooMuchToRead:
            return ""


def _give_place_back(user: uuid.UUID, task: asyncio.Task[None]) -> None:
    LiveConsumer.places[user] -= 1
    if not LiveConsumer.places[user]:
        del LiveConsumer.places[user]


websocket_urlpatterns = [path("live", LiveConsumer.as_asgi())]
