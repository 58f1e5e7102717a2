"""Good and counted requests of every objective, counted here as each request ends.

Two integers per objective and minute, so a burn rate over any window is exact and cheap. Like the
series, a flush repeats the whole minute under the gateway's own writer id.
"""

from collections.abc import Iterable
from functools import partial

from controlplane.bridge.postgres.arrays import int_array, plain_array
from controlplane.bridge.postgres.lane import PreparedCall
from controlplane.bridge.record.series import MINUTE_S
from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel.clock import wall_s
from controlplane.kernel.measures import prompt_bucket
from controlplane.kernel.objectives.counting import INSTALLATION, WatchedObjective, judge

ROWS_PER_CALL_MAX = 500
# All objectives of a large installation over a quarter of an hour without a database.
COUNTS_MAX = 20_000
STATEMENT = (
    b"SELECT slo_count($1::uuid,$2::bigint[],$3::uuid[],$4::integer[],$5::bigint[],$6::bigint[])"
)

Key = tuple[int, str, int]


class ObjectiveCounts:
    """Counts by minute, objective and version, until they are over and written."""

    def __init__(self) -> None:
        self._objectives: dict[str, tuple[WatchedObjective, ...]] = {}
        self._counts: dict[Key, list[int]] = {}
        self._dirty: set[Key] = set()
        self._minute_s = 0
        self.dropped = 0

    @property
    def dirty(self) -> bool:
        return bool(self._dirty)

    def configure(self, objectives: Iterable[WatchedObjective]) -> None:
        found: dict[str, tuple[WatchedObjective, ...]] = {}
        for one in objectives:
            found[one.organization] = (*found.get(one.organization, ()), one)
        self._objectives = found

    def count(self, record: FinishedRequest) -> None:
        """Count a finished request, for its tenant's objectives and the installation's."""
        known = self._objectives
        if not known:
            return
        minute_s = int(wall_s()) // MINUTE_S * MINUTE_S
        bucket = prompt_bucket(record.prompt_tokens)
        for organization in (INSTALLATION, record.organization):
            for objective in known.get(organization, ()):
                good = judge(objective, record, bucket)
                if good is not None:
                    self._add((minute_s, objective.id, objective.version), good)

    def next_call(self, writer: bytes) -> PreparedCall | None:
        if not self._dirty:
            return None
        keys = [self._dirty.pop() for _ in range(min(len(self._dirty), ROWS_PER_CALL_MAX))]
        counts = [self._counts[key] for key in keys]
        return PreparedCall(
            statement=b"objectives",
            parameters=lambda: [
                writer,
                int_array([key[0] for key in keys]),
                plain_array([key[1] for key in keys]),
                int_array([key[2] for key in keys]),
                int_array([good for good, _ in counts]),
                int_array([total for _, total in counts]),
            ],
            failed=partial(self._failed, len(keys)),
            lost=partial(self._lost, keys),
        )

    def _add(self, key: Key, good: bool) -> None:
        counts = self._counts.get(key)
        if counts is None:
            self._forget(key[0])
            if len(self._counts) >= COUNTS_MAX:
                self.dropped += 1
                return
            counts = self._counts[key] = [0, 0]
        counts[0] += good
        counts[1] += 1
        self._dirty.add(key)

    def _forget(self, minute_s: int) -> None:
        """As a minute begins, those before it go that are written."""
        if minute_s == self._minute_s:
            return
        self._minute_s = minute_s
        # A call in flight may yet be lost, and repeat the minute before.
        floor_s = minute_s - 2 * MINUTE_S
        for key in [key for key in self._counts if key[0] < floor_s and key not in self._dirty]:
            del self._counts[key]

    def _lost(self, keys: list[Key]) -> None:
        self._dirty.update(key for key in keys if key in self._counts)

    def _failed(self, count: int, state: str, message: str) -> None:
        self.dropped += count
