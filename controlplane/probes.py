"""What a supervisor asks of one process: `/healthz`, `/readyz`, `/startupz`. Nobody signs in for
them, so they tell states and numbers and nothing of tenants.

Alive: the event loop turns. Ready: requests that came now would be served. Started: it has been
able to serve once; until then a supervisor should be patient.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor

from controlplane.core.pulse import Pulse

PATHS = frozenset({"/healthz", "/readyz", "/startupz"})
DATABASE_S_MAX = 3.0
MS_PER_S = 1_000


class Asked(Protocol):
    """What probes ask of a gateway."""

    def readiness(self) -> dict[str, Any]:
        """Facts; `ready`, and `problems` that say why not."""


class DatabaseProbe:
    """Whether pages can work with PostgreSQL; one question at a time, on a thread of its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="probe")
        self._asked: asyncio.Future[str] | None = None
        self._migrated = False

    async def problem(self) -> str:
        """Empty where all is well."""
        if self._asked is None or self._asked.done():
            loop = asyncio.get_running_loop()
            self._asked = loop.run_in_executor(self._thread, self._look)
        try:
            return await asyncio.wait_for(asyncio.shield(self._asked), DATABASE_S_MAX)
        except TimeoutError:
            return f"PostgreSQL has not answered for {DATABASE_S_MAX:g} s"

    def close(self) -> None:
        """Ask no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _look(self) -> str:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
            if not self._migrated and _unapplied():
                return "migrations are missing: run manage.py migrate"
        except Error:
            return "PostgreSQL cannot be reached"
        finally:
            connection.close()
        self._migrated = True
        return ""


class Probes:
    """Answers for a process that has a gateway, pages, or both."""

    def __init__(self, gateway: Asked | None, *, has_pages: bool) -> None:
        self.pulse = Pulse()
        self._gateway = gateway
        self._database = DatabaseProbe() if has_pages else None
        self._started = False

    async def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and body for one of `PATHS`."""
        if path == "/healthz":
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
        """The process ends."""
        self.pulse.stop()
        if self._database is not None:
            self._database.close()

    async def _readiness(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"ready": True, "problems": []}
        if self._gateway is not None:
            facts |= self._gateway.readiness()
        if self._database is not None and (problem := await self._database.problem()):
            facts["problems"] = [*facts["problems"], problem]
            facts["ready"] = False
        return facts


def _status(good: bool) -> int:
    return 200 if good else 503


def _unapplied() -> bool:
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
