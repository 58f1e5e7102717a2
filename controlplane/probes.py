"""What a supervisor asks of one process: `/healthz`, `/readyz`, `/startupz`. No one signs in for
them, so they tell states and numbers and nothing of tenants.

Alive: the event loop turns. Ready: requests that came now would be served. Started: it has been
able to serve once; until then a supervisor should be patient.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor
from django.utils.module_loading import import_string

from controlplane.core.jobs.pulse import Pulse
from inference.contract.version import VERSION

ALIVE = ("/healthz", "/health")
PATHS = frozenset({*ALIVE, "/readyz", "/startupz"})
DATABASE_S_MAX = 3.0
MS_PER_S = 1_000
# By name: probes are imported before Django's apps are there.
ROLLUPS = "controlplane.telemetry.rollups.rollups_behind"
# Telemetry may be slow while pages work well; anybody may ask, and its figure takes eight queries.
ROLLUPS_S_MAX = 1.0
ROLLUPS_KEPT_S = 15.0
# Roll-ups are made each half minute: after so long no one makes them, or one fails.
ROLLUPS_BEHIND_S_MAX = 900.0
ROLLUPS_BEHIND = "telemetry roll-ups are late: check that the worker is running, and its log"
ROLLUPS_UNKNOWN = "telemetry roll-up status is unknown: its queries fail or are too slow"
logger = logging.getLogger(__name__)
T = TypeVar("T")


class ProbedGateway(Protocol):
    """What probes ask of a gateway."""

    def readiness(self) -> dict[str, Any]:
        """Facts; `ready`, `problems` that say why not, and what is `degraded` all the same."""


class Question(Generic[T]):
    """One at a time, on a thread of its own; who comes meanwhile waits for the same answer."""

    def __init__(self, ask: Callable[[], T], name: str) -> None:
        self._ask = ask
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._asked: asyncio.Future[T] | None = None

    async def answer(self, s_max: float) -> T:
        """What came back; raises `TimeoutError` where nothing has in time."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.get_running_loop().run_in_executor(self._thread, self._ask)
        return await asyncio.wait_for(asyncio.shield(self._asked), s_max)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class DatabaseProbe:
    """Whether pages can work with PostgreSQL."""

    def __init__(self) -> None:
        self._question = Question(self._look, "probe")
        self._migrated = False

    async def problem(self) -> str:
        """Why pages cannot work, empty where they can."""
        try:
            return await self._question.answer(DATABASE_S_MAX)
        except TimeoutError:
            return f"PostgreSQL has not answered for {DATABASE_S_MAX:g} s"

    def close(self) -> None:
        self._question.close()

    def _look(self) -> str:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
            if not self._migrated and _unapplied():
                return "migrations are missing: run manage.py migrate"
            self._migrated = True
            return ""
        except Error:
            return "PostgreSQL cannot be reached"
        finally:
            connection.close()


class RollupsProbe:
    """How far roll-ups are behind, asked for at most once in `ROLLUPS_KEPT_S`."""

    def __init__(self) -> None:
        self._question = Question(_rollups_behind_s, "probe-rollups")
        self._found: float | None = None
        self._found_at: float | None = None

    async def behind_s(self) -> float | None:
        """Seconds; None where telemetry's queries fail or are too slow."""
        if self._found_at is None or time.monotonic() - self._found_at >= ROLLUPS_KEPT_S:
            try:
                self._found = await self._question.answer(ROLLUPS_S_MAX)
            except (Error, TimeoutError):
                logger.warning(ROLLUPS_UNKNOWN, exc_info=True)
                self._found = None
            self._found_at = time.monotonic()
        return self._found

    def close(self) -> None:
        self._question.close()


class Probes:
    """Answers for a process that has a gateway, pages, or both."""

    def __init__(self, gateway: ProbedGateway | None, *, has_pages: bool) -> None:
        self.pulse = Pulse()
        self._gateway = gateway
        self._database = DatabaseProbe() if has_pages else None
        self._rollups = RollupsProbe() if has_pages else None
        self._started = False

    async def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        if path in ALIVE:
            return 200, {"status": "ok", "loop_late_ms": round(self.pulse.late_s * MS_PER_S)}
        if path == "/startupz" and self._started:
            return 200, {"started": True}
        facts = await self._readiness()
        self._started = self._started or facts["ready"]
        if path == "/startupz":
            return _status(facts["ready"]), {
                "started": facts["ready"],
                "problems": facts["problems"],
            }
        return _status(facts["ready"]), facts

    def stop(self) -> None:
        self.pulse.stop()
        if self._database is not None:
            self._database.close()
        if self._rollups is not None:
            self._rollups.close()

    async def _readiness(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"ready": True, "version": VERSION, "problems": [], "degraded": []}
        if self._gateway is not None:
            facts |= self._gateway.readiness()
        if self._database is not None and self._rollups is not None:
            problem = await self._database.problem()
            behind_s = None if problem else await self._rollups.behind_s()
            facts["problems"] = [*facts["problems"], *filter(None, [problem])]
            facts["ready"] = not facts["problems"]
            facts["rollups_behind_s"] = behind_s
            degraded = "" if problem else _rollups_degraded(behind_s)
            facts["degraded"] = [*facts["degraded"], *filter(None, [degraded])]
        return facts


def _status(good: bool) -> int:
    return 200 if good else 503


def _rollups_degraded(behind_s: float | None) -> str:
    if behind_s is None:
        return ROLLUPS_UNKNOWN
    return ROLLUPS_BEHIND if behind_s > ROLLUPS_BEHIND_S_MAX else ""


def _rollups_behind_s() -> float:
    try:
        seconds: float = import_string(ROLLUPS)().seconds
        return seconds
    finally:
        connection.close()


def _unapplied() -> bool:
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
