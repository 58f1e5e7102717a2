"""The Hygiene port on PostgreSQL: waste by key, model and hour, counted here, written later.

It has a lane of its own and may lose its last seconds in a crash: these are estimates, not money.
"""

import asyncio
import uuid
from collections.abc import Iterator
from functools import partial

import structlog

from controlplane.bridge.postgres.arrays import int_array, nested_array, plain_array, text_array
from controlplane.bridge.postgres.lane import PostgresLane, PreparedCall
from controlplane.gateway.ports import Inspected
from controlplane.kernel.clock import monotonic_s, wall_s
from controlplane.kernel.tasks import end

FLUSH_S = 5.0
HOUR_S = 3_600
# Rows of one hour; what finds no room is counted as refused.
ROWS_MAX = 5_000
ROWS_PER_CALL_MAX = 100
DRAIN_S = 3.0
DRAIN_POLL_S = 0.02
LOG_REFUSED_S = 5.0
LOOKED, LEFT_OUT = "looked", "left_out"
STATEMENTS = {
    b"count": b"SELECT insights_hygiene_count($1::uuid,$2::bigint[],$3::text[],$4::text[],"
    b"$5::text[],$6::text[])"
}
# Hour, organization, project, key, client, model, kind.
Row = tuple[int, str, str, str, str, str, str]

log = structlog.get_logger(__name__)


class PostgresHygiene:
    """Implements `ports.Hygiene`; `start` returns immediately."""

    def __init__(self, conninfo: str) -> None:
        self._writer = uuid.uuid4().hex.encode()
        self._lane = PostgresLane("hygiene", conninfo, self, STATEMENTS)
        self._rows: dict[Row, list[int]] = {}
        self._dirty: set[Row] = set()
        self._due = False
        self._ticker: asyncio.Task[None] | None = None
        self._logged_at_s = -LOG_REFUSED_S
        self.refused = 0

    def start(self) -> None:
        self._lane.start()
        self._ticker = asyncio.get_running_loop().create_task(self._tick(), name="hygiene flush")

    async def close(self) -> None:
        """Write what is left, within a bound, and cut the lane."""
        await end(self._ticker)
        await self.flush()
        await self._lane.close()

    async def flush(self) -> bool:
        for _ in range(int(DRAIN_S / DRAIN_POLL_S)):
            if not (self._dirty or self._lane.busy):
                return True
            self._due = True
            self._lane.wake()
            await asyncio.sleep(DRAIN_POLL_S)
        return False

    def count(self, inspected: Inspected) -> None:
        """Add one request to its hour; never blocks."""
        hour_s = int(wall_s()) // HOUR_S * HOUR_S
        for kind, tokens, nano in _parts(inspected):
            row = (
                hour_s, inspected.organization, inspected.project, inspected.key,
                inspected.client, inspected.model, kind,
            )  # fmt: skip
            found = self._rows.get(row)
            if found is None:
                if len(self._rows) >= ROWS_MAX and not self._forget(hour_s):
                    self.refused += 1
                    continue
                found = self._rows[row] = [0, 0, 0]
            found[0] += 1
            found[1] += tokens
            found[2] += nano
            self._dirty.add(row)

    def connected(self) -> None:
        """Nothing must come first: every write can be repeated."""

    def next_call(self) -> PreparedCall | None:
        if not self._due:
            return None
        if not self._dirty:
            self._due = False
            return None
        rows = [self._dirty.pop() for _ in range(min(len(self._dirty), ROWS_PER_CALL_MAX))]
        return PreparedCall(
            statement=b"count",
            parameters=lambda: [
                self._writer,
                int_array([row[0] for row in rows]),
                nested_array([row[1:5] for row in rows]),
                text_array([row[5] for row in rows]),
                plain_array([row[6] for row in rows]),
                nested_array([map(str, self._rows[row]) for row in rows]),
            ],
            failed=partial(self._failed, len(rows)),
            lost=partial(self._dirty.update, rows),
        )

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            self._due = True
            self._lane.wake()

    def _forget(self, hour_s: int) -> bool:
        """Drop hours that are over and written; False where that made no room."""
        over = [row for row in self._rows if row[0] < hour_s and row not in self._dirty]
        # A call in flight may come back as lost: its rows must still be here.
        if self._lane.busy:
            return False
        for row in over:
            del self._rows[row]
        return bool(over)

    def _failed(self, count: int, state: str, message: str) -> None:
        self.refused += count
        now_s = monotonic_s()
        if now_s - self._logged_at_s >= LOG_REFUSED_S:
            self._logged_at_s = now_s
            log.error("hygiene_refused", rows=self.refused, sqlstate=state, message=message)


def _parts(inspected: Inspected) -> Iterator[tuple[str, int, int]]:
    """Rows that one request counts in: kind, tokens, nano-USD."""
    yield LOOKED if inspected.looked else LEFT_OUT, inspected.tokens, inspected.nano
    for finding in inspected.findings:
        yield finding.kind, finding.tokens, finding.nano
