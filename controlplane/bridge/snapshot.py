"""The configuration in memory, read whole from PostgreSQL whenever its version moves.

It asks for the version every second and whenever PostgreSQL notifies it of a change: a notification
that is lost costs at most that second. While PostgreSQL is away the last snapshot stays in force;
how long it may be trusted is decided by who reads `age_s`.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256

import msgspec
import structlog

from controlplane.bridge.session import Connection, keep_session
from controlplane.gateway.snapshot import (
    EMPTY,
    KeyRecord,
    Limits,
    ModelRecord,
    ProjectRecord,
    PromptRecord,
    SafetyMode,
    Snapshot,
)
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.objectives import Objective
from controlplane.kernel.rules import Candidate, RouteRule

POLL_S = 1.0
QUERY_S_MAX = 5.0
_log = structlog.get_logger(__name__)


class _Project(msgspec.Struct, frozen=True, kw_only=True):
    """A project as the database tells it: without the salt, whose secret it never sees."""

    id: str
    organization: str
    safety: SafetyMode
    limits: Limits
    weight: int
    content: bool


class _Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON text of `config_snapshot()`."""

    version: int
    keys: dict[str, KeyRecord]
    organizations: dict[str, Limits]
    projects: dict[str, _Project]
    models: dict[str, ModelRecord]
    rules: tuple[RouteRule, ...]
    candidate: Candidate | None
    budgets: frozenset[str]
    prompts: dict[str, PromptRecord]
    # Until the migration that tells it has run, nobody's.
    tokens_from: dict[str, float] = {}
    objectives: tuple[Objective, ...] = ()
    shed_until: dict[int, float] = {}


_decoder = msgspec.json.Decoder(_Loaded)


class SnapshotSource:
    """Follows the configuration; one per event loop."""

    def __init__(
        self,
        conninfo: str,
        *,
        salt_secret: bytes,
        changed: Callable[[Snapshot], None] | None = None,
    ) -> None:
        self._conninfo = conninfo
        self._changed = changed
        self._salt_secret = salt_secret
        self._task: asyncio.Task[None] | None = None
        self._loaded = asyncio.Event()
        self._checked_s = 0.0
        self.current: Snapshot = EMPTY

    @property
    def age_s(self) -> float:
        """Seconds since the snapshot was last known to be the newest; infinite before the first."""
        return monotonic_s() - self._checked_s if self._loaded.is_set() else float("inf")

    def start(self) -> None:
        """Begin to follow; returns at once."""
        self._task = asyncio.create_task(
            keep_session(self._conninfo, "snapshot", self._follow), name="snapshot"
        )

    async def wait_loaded(self, seconds_max: float) -> None:
        """Return once there is a snapshot; raises TimeoutError."""
        async with asyncio.timeout(seconds_max):
            await self._loaded.wait()

    async def close(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _follow(self, connection: Connection) -> None:
        await connection.execute("LISTEN sluice_config")
        while True:
            async with asyncio.timeout(QUERY_S_MAX):
                await self._refresh(connection)
            async for _ in connection.notifies(timeout=POLL_S, stop_after=1):
                pass

    async def _refresh(self, connection: Connection) -> None:
        asked_s = monotonic_s()
        if await _value(connection, b"SELECT config_version_now()") != self.current.version:
            text = await _value(connection, b"SELECT config_snapshot()")
            self.current = self._salted(_decoder.decode(str(text)))
            if self._changed is not None:
                self._changed(self.current)
            _log.debug("configuration loaded", version=self.current.version)
        self._checked_s = asked_s
        self._loaded.set()

    def _salted(self, loaded: _Loaded) -> Snapshot:
        projects = {
            project.id: ProjectRecord(
                id=project.id,
                organization=project.organization,
                safety=project.safety,
                salt=self._salt(project.organization),
                limits=project.limits,
                weight=project.weight,
                content=project.content,
            )
            for project in loaded.projects.values()
        }
        return Snapshot(
            version=loaded.version,
            keys=loaded.keys,
            projects=projects,
            models=loaded.models,
            rules=loaded.rules,
            candidate=loaded.candidate,
            budgets=loaded.budgets,
            prompts=loaded.prompts,
            organizations=loaded.organizations,
            tokens_from=loaded.tokens_from,
            objectives=loaded.objectives,
            shed_until=loaded.shed_until,
        )

    def _salt(self, organization: str) -> bytes:
        # By organization: its projects may share cached prefixes, tenants never do.
        return hmac.digest(self._salt_secret, organization.encode("ascii"), sha256)


async def _value(connection: Connection, query: bytes) -> object:
    row = await (await connection.execute(query)).fetchone()
    return row[0] if row else None
