"""The `/live` socket: the Overview's figures as JSON while somebody looks. It accepts no data.

Origin and session are checked before this consumer is reached (`asgi.py`); here the user's right is
checked again every minute, so that a removed member does not go on watching.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from urllib.parse import parse_qsl

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.urls import path
from django.utils import timezone

from controlplane.core.permissions import Action
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.tenants.models import User
from frontend.access import SESSION_KEY, find_viewer
from frontend.cells import percent_from
from frontend.figures_now import RollingOverview
from frontend.ranges import TimeRange, range_from

WATCHERS_MAX = 64
RECHECK_S = 60.0
# A longer range moves more slowly and costs more to read.
PERIODS_S = {60: 1.0, 300: 5.0, 900: 15.0}
PERIOD_LONG_S = 30.0
NOT_ALLOWED, TOO_MANY, NOT_LIVE = 4401, 4429, 4400


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """One watcher of one range."""

    watchers = 0

    async def connect(self) -> None:
        """Accept a signed-in member with a relative range."""
        self.task: asyncio.Task[None] | None = None
        self.counted = False
        await self.accept()
        within, complaint = range_from(self._query(), timezone.now())
        if complaint or not within.relative:
            await self.close(code=NOT_LIVE)
        elif LiveConsumer.watchers >= WATCHERS_MAX:
            await self.close(code=TOO_MANY)
        else:
            LiveConsumer.watchers += 1
            self.counted = True
            self.task = asyncio.create_task(self._watch(), name="live overview")

    async def disconnect(self, code: int) -> None:
        """Stop reading at once."""
        if self.counted:
            LiveConsumer.watchers -= 1
            self.counted = False
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Nothing is expected from a watcher."""

    def _query(self) -> dict[str, str]:
        return dict(parse_qsl(self.scope["query_string"].decode("latin-1")))

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        rolling: RollingOverview | None = None
        checked = 0.0
        sent = ""
        while True:
            if rolling is None or loop.time() - checked > RECHECK_S:
                organization = await database_sync_to_async(self._allowed)()
                if organization is None:
                    await self.close(code=NOT_ALLOWED)
                    return
                rolling = rolling or RollingOverview(organization, percent_from(self._query()))
                checked = loop.time()
            within, _ = range_from(self._query(), timezone.now())
            text = await database_sync_to_async(self._figures)(rolling, within)
            if text and text != sent:
                await self.send(text_data=text)
                sent = text
            await asyncio.sleep(PERIODS_S.get(within.step_s, PERIOD_LONG_S))

    def _allowed(self) -> uuid.UUID | None:
        user = self.scope.get("user")
        if not isinstance(user, User):
            return None
        user = User.objects.filter(id=user.id, is_active=True).first()
        viewer = find_viewer(user, self.scope["session"].get(SESSION_KEY)) if user else None
        if viewer is None or not viewer.may(Action.ORGANIZATION_VIEW):
            return None
        return viewer.organization.id

    def _figures(self, rolling: RollingOverview, within: TimeRange) -> str:
        try:
            return json.dumps(rolling.read(within, timezone.now()).live(), separators=(",", ":"))
        except TooMuchToRead:
            return ""


websocket_urlpatterns = [path("live", LiveConsumer.as_asgi())]
