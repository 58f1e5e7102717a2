"""The Contents port on PostgreSQL: sealed in a thread, written in batches over one connection.

Never in the way of requests: what finds no room in the queue is dropped and counted. A project's
data key comes with the configuration; PostgreSQL takes nothing that is sealed with another.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

import psycopg
import structlog

from controlplane.bridge.postgres.session import AskingSession, Connection, Row
from controlplane.contents.sealing import ContentKey
from controlplane.core.seal import BrokenSeal
from controlplane.gateway.ports import LedgerAway
from controlplane.gateway.ports_contents import ContentsAway, Rated
from controlplane.gateway.snapshot import ProjectRecord
from controlplane.kernel.contents.kept import KeptContent, facts_as_terms, terms_of

QUEUE_BYTES_MAX = 64 << 20
# What a request takes in the queue beside what was said.
ROW_BYTES = 2_000
# Of two MiB each at most: a write takes a fraction of its bound.
BATCH_ROWS_MAX = 8
GATHER_S = 0.2
IDLE_S = 5.0
DRAIN_S = 5.0
DRAIN_POLL_S = 0.02
_KEEP = (
    "SELECT contents_keep(%s, %s::bytea[], %s::uuid[], %s::uuid[], %s::uuid[], %s::text[],"
    " %s::bytea[])"
)
_END = "SELECT contents_end(%s, %s, %s, %s, %s, %s, %s)"
IN_PROGRESS = facts_as_terms({"status": "in_progress"})
_READ = "SELECT organization, sealed FROM contents_read(%s, %s)"
_DELETE = "SELECT contents_delete(%s, %s)"
_RATE = "SELECT receipt, changed FROM telemetry_rate(%s, %s, %s::smallint, %s)"
log = structlog.get_logger(__name__)


class PostgresContents(AskingSession):
    """Implements `ports_contents.Contents`; one per event loop."""

    name = "contents"
    unavailable = "what is kept can be neither read nor written now"

    def __init__(self, conninfo: str, projects: Callable[[], Mapping[str, ProjectRecord]]) -> None:
        super().__init__(conninfo)
        self._projects = projects
        self._queue: deque[KeptContent] = deque()
        self._bytes = 0
        self._woken = asyncio.Event()
        self.dropped = 0

    def keep(self, content: KeptContent) -> None:
        if self._bytes + content.size + ROW_BYTES > QUEUE_BYTES_MAX:
            self._drop(1, "the queue is full")
            return
        self._queue.append(content)
        self._bytes += content.size + ROW_BYTES
        self._woken.set()

    async def keep_now(self, content: KeptContent) -> None:
        await self._ask(_KEEP, await asyncio.to_thread(self._sealed, [content], replace=True))

    async def keep_end(self, content: KeptContent) -> bool:
        key = self._key(content.project)
        _, *columns = await asyncio.to_thread(self._sealed, [content], replace=True)
        if key is None or not columns[0]:
            return False
        values = [*key.hashes(IN_PROGRESS), *(value for (value,) in columns)]
        ((ended,),) = await self._ask(_END, values)
        return bool(ended)

    async def read(self, project: str, request: bytes) -> KeptContent | None:
        found = await self._ask(_READ, [UUID(project), UUID(bytes=request)])
        key = self._key(project)
        if not found or key is None:
            return None
        ((organization, kept),) = found
        try:
            return await asyncio.to_thread(key.open, bytes(kept), organization.hex, request)
        except BrokenSeal:
            return None

    async def delete(self, project: str, request: bytes) -> bool:
        ((gone,),) = await self._ask(_DELETE, [UUID(project), UUID(bytes=request)])
        return bool(gone)

    async def rate(self, project: str, request: bytes, rating: int, comment: str) -> Rated | None:
        values = [UUID(project), UUID(bytes=request), rating, comment]
        found = await self._ask(_RATE, values)
        return Rated(bytes(found[0][0]), found[0][1]) if found else None

    async def flush(self) -> bool:
        """Write what waits; False when that took longer than a bound."""
        for _ in range(int(DRAIN_S / DRAIN_POLL_S)):
            if not self._queue:
                return True
            await asyncio.sleep(DRAIN_POLL_S)
        return False

    async def close(self) -> None:
        """Write what is left, within a bound, and close."""
        if not await self.flush():
            self._drop(len(self._queue), "the gateway stops")
        await super().close()

    async def _ask(self, query: str, values: Sequence[Any]) -> list[Row]:
        try:
            return await self._rows(query, values)
        except LedgerAway as error:
            raise ContentsAway(self.unavailable) from error

    async def _turn(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(IDLE_S):
                await self._woken.wait()
        except TimeoutError:
            await self._fetch(connection, "SELECT 1")
            return
        await asyncio.sleep(GATHER_S)
        while self._queue:
            batch = list(islice(self._queue, BATCH_ROWS_MAX))
            values = await asyncio.to_thread(self._sealed, batch, replace=False)
            try:
                await self._fetch(connection, _KEEP, values)
            except (psycopg.DataError, psycopg.IntegrityError) as error:
                # The next time would be no better; after other errors there is a next time.
                self._drop(len(batch), str(error).partition("\n")[0])
            for content in batch:
                self._queue.popleft()
                self._bytes -= content.size + ROW_BYTES
        self._woken.clear()

    def _sealed(self, contents: Iterable[KeptContent], *, replace: bool) -> list[Any]:
        """Values of `contents_keep`, of those whose projects have a key; the first of a request."""
        found: dict[bytes, tuple[KeptContent, ContentKey]] = {}
        for one in contents:
            if one.request not in found and (key := self._key(one.project)) is not None:
                found[one.request] = one, key
        rows = found.values()
        return [
            replace,
            [key.wrapped for _, key in rows],
            [UUID(bytes=one.request) for one, _ in rows],
            [UUID(one.organization) for one, _ in rows],
            [UUID(one.project) for one, _ in rows],
            ["{" + ",".join(map(str, key.hashes(terms_of(one)))) + "}" for one, key in rows],
            [key.seal(one) for one, key in rows],
        ]

    def _key(self, project: str) -> ContentKey | None:
        """The data key of a project, opened for this once; None where it has none."""
        record = self._projects().get(project)
        if record is None or not record.content_key:
            return None
        try:
            return ContentKey(bytes.fromhex(record.content_key), project)
        except BrokenSeal:
            log.error("content_key_not_opened", project=project)
            return None

    def _drop(self, count: int, why: str) -> None:
        self.dropped += count
        log.error("contents_dropped", dropped=self.dropped, why=why)
