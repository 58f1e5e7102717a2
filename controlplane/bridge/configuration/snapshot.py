"""The configuration in memory: what changed is read from PostgreSQL whenever its version moves.

It asks for the version every second and whenever PostgreSQL notifies it of a change: a notification
that is lost costs at most that second. Of what tenants may have many of it reads the changed rows
alone, in pages, so that the event loop is never held for long. While PostgreSQL is down the last
snapshot stays in force; how long it may be trusted is decided by who reads `age_s`. Each session
begins with everything: after a failover or a restore marks that were read may mean other changes.
"""

import asyncio
import hmac
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Generic, TypeVar

import msgspec
import psycopg
import structlog

from controlplane.bridge.postgres.session import Connection, PostgresSession
from controlplane.gateway import snapshot
from controlplane.kernel.clock import monotonic_s, wall_s
from controlplane.kernel.objectives.counting import WatchedObjective
from controlplane.kernel.rules import CanaryRules, RouteRule

POLL_S = 1.0
QUERY_S_MAX = 5.0
# Decoding a page takes some milliseconds.
PAGE_ROWS = 1_000
# A storm of changes is read at most this often.
CHANGE_GAP_S = 0.05
# So often at least gateways let go of keys that ended long ago.
READ_AGAIN_S = 60.0
FIRST = "00000000-0000-0000-0000-000000000000"
_log = structlog.get_logger(__name__)
Body = TypeVar("Body")


class _Row(msgspec.Struct, Generic[Body], frozen=True, gc=False):
    """One row of a page: `name` is how requests find it; without a body it is gone."""

    id: str
    name: str
    body: Body | None


class _Rules(msgspec.Struct, frozen=True):
    """The rules in force, and those that some requests try."""

    rules: tuple[RouteRule, ...]
    candidate: CanaryRules | None


class _Objectives(msgspec.Struct, frozen=True):
    """What is measured, and until when (by the database's clock) which priorities are shed."""

    objectives: tuple[WatchedObjective, ...]
    shed_until: dict[int, float]


class _Parts(msgspec.Struct, frozen=True):
    """The JSON text of `config_parts()`: None where nothing has changed."""

    organizations: dict[str, snapshot.Limits] | None
    models: dict[str, snapshot.ModelRecord] | None
    model_names: frozenset[str] | None
    rules: _Rules | None
    tokens_from: dict[str, float] | None
    objectives: _Objectives | None


class _Now(msgspec.Struct, frozen=True):
    """What `config_now()` tells: the numbers of the configuration, and the database's clock."""

    version: int
    mark: int
    now_s: float


NOTHING = _Now(0, 0, 0.0)
_parts = msgspec.json.Decoder(_Parts)
_keys = msgspec.json.Decoder(list[_Row[snapshot.KeyRecord]])
_projects = msgspec.json.Decoder(list[_Row[snapshot.ProjectRecord]])
_prompts = msgspec.json.Decoder(list[_Row[snapshot.PromptRecord]])
_budgets = msgspec.json.Decoder(list[_Row[bool]])


class SnapshotSource(PostgresSession):
    name = "snapshot"

    def __init__(
        self,
        conninfo: str,
        *,
        salt_secret: bytes,
        changed: Callable[[snapshot.Snapshot], None] | None = None,
    ) -> None:
        super().__init__(conninfo)
        self._changed = changed
        self._salt_secret = salt_secret
        self._loaded = asyncio.Event()
        self._checked_s = 0.0
        self._read = NOTHING
        self._ahead_s = 0.0
        self.current: snapshot.Snapshot = snapshot.EMPTY

    @property
    def loaded(self) -> bool:
        return self._loaded.is_set()

    @property
    def age_s(self) -> float:
        """Seconds since the snapshot was last known to be the newest; infinite before the first."""
        return monotonic_s() - self._checked_s if self.loaded else float("inf")

    @property
    def now_s(self) -> float:
        """The database's clock in seconds, by which keys expire on every gateway alike."""
        return monotonic_s() + self._ahead_s

    async def wait_loaded(self, seconds_max: float) -> None:
        """Return once there is a snapshot; raises TimeoutError."""
        async with asyncio.timeout(seconds_max):
            await self._loaded.wait()

    async def _work(self, connection: Connection) -> None:
        self._read = NOTHING
        await connection.execute("LISTEN sluice_config")
        while True:
            await self._refresh(connection)
            await asyncio.sleep(CHANGE_GAP_S)
            async for _ in connection.notifies(timeout=POLL_S - CHANGE_GAP_S, stop_after=1):
                pass

    async def _refresh(self, connection: Connection) -> None:
        asked_s = monotonic_s()
        now = _Now(*await _row(connection, b"SELECT version, mark, now_s FROM config_now()", ()))
        self._ahead_s = now.now_s - asked_s
        if now.version != self._read.version or now.now_s - self._read.now_s >= READ_AGAIN_S:
            await self._read_changes(connection, now)
        self._checked_s = asked_s
        self._loaded.set()

    async def _read_changes(self, connection: Connection, now: _Now) -> None:
        """What has changed since the last reading, at least up to `now`; all, if there was none.

        What was published before serves until all of it is read.
        """
        if now.mark < self._read.mark:
            # Another database than before, such as one restored from a backup: all of it is new.
            self._read = NOTHING
        held, since = snapshot.EMPTY if self._read is NOTHING else self.current, self._read.mark
        # Keys before projects: whoever finds a key finds its project.
        query = b"SELECT config_keys(%s, %s, %s, %s)"
        keys = await _changed(connection, query, _keys, since, self._read.now_s)
        projects = await _changed(connection, _paged(b"projects"), _projects, since)
        budgets = await _changed(connection, _paged(b"budgets"), _budgets, since)
        prompts = await _changed(connection, _paged(b"prompts"), _prompts, since)
        prices = self._read.version - since
        query = b"SELECT config_parts(%s, %s)"
        parts = _parts.decode((await _row(connection, query, (since, prices)))[0])
        own = {name: project and self._salted(project) for name, project in projects.items()}
        self.current = msgspec.structs.replace(
            held,
            version=now.version,
            keys=_applied(held.keys, keys),
            projects=_applied(held.projects, own),
            prompts=_applied(held.prompts, prompts),
            budgets=_within(held.budgets, budgets),
            **self._told(parts),
        )
        self._read = now
        if self._changed is not None:
            self._changed(self.current)
        _log.debug("configuration loaded", version=now.version)

    def _told(self, parts: _Parts) -> dict[str, Any]:
        """The parts that have changed, by the fields of the snapshot."""
        found: dict[str, Any] = {
            name: part
            for name in ("organizations", "models", "model_names", "tokens_from")
            if (part := getattr(parts, name)) is not None
        }
        if parts.rules is not None:
            found |= msgspec.structs.asdict(parts.rules)
        if parts.objectives is not None:
            slow_s = wall_s() - self.now_s
            shed = parts.objectives.shed_until.items()
            found["objectives"] = parts.objectives.objectives
            found["shed_until"] = {priority: until_s + slow_s for priority, until_s in shed}
        return found

    def _salted(self, project: snapshot.ProjectRecord) -> snapshot.ProjectRecord:
        # By organization: its projects may share cached prefixes, tenants never do.
        salt = hmac.digest(self._salt_secret, project.organization.encode("ascii"), sha256)
        return msgspec.structs.replace(project, salt=salt)


def _paged(kind: bytes) -> bytes:
    return b"SELECT config_%s(%%s, %%s, %%s)" % kind


async def _changed(
    connection: Connection,
    query: bytes,
    decoder: msgspec.json.Decoder[list[_Row[Body]]],
    since: int,
    *more: float,
) -> dict[str, Body | None]:
    """All rows that changed since a mark, by name; None for those that are gone."""
    found: dict[str, Body | None] = {}
    after, page = FIRST, PAGE_ROWS
    while page == PAGE_ROWS:
        (text,) = await _row(connection, query, (since, after, PAGE_ROWS, *more))
        rows = decoder.decode(text)
        found.update((row.name, row.body) for row in rows)
        after, page = (rows[-1].id, len(rows)) if rows else (after, 0)
    return found


def _applied(held: dict[str, Body], changed: dict[str, Body | None]) -> dict[str, Body]:
    if not changed:
        return held
    made: dict[str, Any] = held | changed
    for name in [name for name, body in changed.items() if body is None]:
        del made[name]
    return made


def _within(held: frozenset[str], changed: dict[str, bool | None]) -> frozenset[str]:
    gone = {name for name, there in changed.items() if not there}
    return (held | changed.keys()) - gone if changed else held


async def _row(connection: Connection, query: bytes, values: tuple[object, ...]) -> tuple[Any, ...]:
    async with asyncio.timeout(QUERY_S_MAX):
        row = await (await connection.execute(query, values)).fetchone()
    if row is None:
        raise psycopg.DataError("the configuration has no version")
    return row
