"""The Recorder port on PostgreSQL: finished requests in batches, and this gateway's series.

Never in the way of money: it has a lane of its own, drops the oldest when its bound is reached, and
counts what it dropped.
"""

import asyncio
import struct
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from operator import attrgetter

import structlog

from controlplane.bridge.postgres import arrays
from controlplane.bridge.postgres.lane import PostgresLane, PreparedCall
from controlplane.bridge.record import series
from controlplane.bridge.record.exemplars import NewExemplar
from controlplane.bridge.record.objectives import STATEMENT as COUNT_OBJECTIVES
from controlplane.bridge.record.objectives import ObjectiveCounts
from controlplane.bridge.record.totals import RunningTotals, Sums
from controlplane.bridge.record.traces import TraceQueue
from controlplane.gateway.nodes.drafts import DraftedTokens
from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel.clock import monotonic_s, wall_s
from controlplane.kernel.tasks import end

QUEUE_MAX = 20_000
ROWS_MAX = 200
KEYS_PER_CALL_MAX = 4
EXEMPLARS_PER_CALL_MAX = 200
USAGE_PER_CALL_MAX = 100
ROWS_FLUSH_S = 0.2
SERIES_FLUSH_S = 3.0
FOLDS_MAX = 1_000
# Series of a dimension are written each so many times: pages watch the others live.
NARROW_EVERY = 10
DRAIN_S = 5.0
DRAIN_POLL_S = 0.02
LOG_REFUSED_S = 5.0
STATEMENTS = {
    b"record": b"SELECT telemetry_record($1::uuid[],$2::bigint[],$3::text[],$4::text[],$5::text[],"
    b"$6::text[],$7::text[])",
    b"merge": b"SELECT telemetry_merge($1::uuid,$2::bigint[],$3::uuid[],$4::uuid[],$5::text[],"
    b"$6::text[],$7::smallint[],$8::smallint[],$9::text[])",
    b"show": b"SELECT telemetry_exemplars($1::text[],$2::text[],$3::text[],$4::text[])",
    b"count": b"SELECT telemetry_count($1::uuid,$2::bigint[],$3::uuid[],$4::uuid[],$5::uuid[],"
    b"$6::text[],$7::text[],$8::text[],$9::text[])",
    b"objectives": COUNT_OBJECTIVES,
}


log = structlog.get_logger(__name__)


class PostgresRecorder:
    """Implements `ports.Recorder`; `start` returns immediately."""

    def __init__(self, conninfo: str, traces: TraceQueue | None = None) -> None:
        self._traces = traces
        self._writer = uuid.uuid4().hex.encode()
        self._rows: deque[FinishedRequest] = deque()
        self._repeats: deque[list[FinishedRequest]] = deque()
        self.objectives = ObjectiveCounts()
        self._totals = RunningTotals()
        self._uncounted: list[FinishedRequest] = []
        self._minutes = series.Minutes(self._retire)
        self._lane = PostgresLane("telemetry", conninfo, self, STATEMENTS)
        self._rows_due = False
        self._series_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._series_refused = 0
        self._logged_at_s = -LOG_REFUSED_S
        self._written_s = monotonic_s()
        self.dropped = 0

    @property
    def dropped_series(self) -> int:
        """Requests without series of their own, since there were too many, and series refused."""
        return self._minutes.overflowed + self._series_refused

    @property
    def written_s_ago(self) -> float:
        """Seconds since PostgreSQL took series last."""
        return monotonic_s() - self._written_s

    @property
    def rows_waiting(self) -> int:
        """Requests whose row is not on its way yet."""
        return len(self._rows)

    def facts(self) -> dict[str, object]:
        """How fresh and how whole what pages show of this gateway is."""
        return {
            "rows_waiting": self.rows_waiting,
            "rows_dropped": self.dropped,
            "series_dropped": self.dropped_series,
            "written_s_ago": round(self.written_s_ago, 1),
        }

    async def fold(self) -> None:
        """Add requests to their series, with room for others on the loop between some and some."""
        await self._fold(narrow=False)

    def sums(self) -> Sums:
        """What this gateway has counted since it started, as far as it is folded."""
        return self.totals.sums(self._minutes.kept())

    @property
    def totals(self) -> RunningTotals:
        self._count()
        return self._totals

    def _count(self) -> None:
        self._totals.count(self._uncounted)
        self._uncounted.clear()

    def _retire(self, minute: series.Minute) -> None:
        self.totals.retire(minute)

    def start(self) -> None:
        self._lane.start()
        self._ticker = asyncio.get_running_loop().create_task(self._tick(), name="series flush")

    async def close(self) -> None:
        """Write what is left, within a bound, and cut the lane."""
        await end(self._ticker)
        if self._timer is not None:
            self._timer.cancel()
        await self.flush()
        await self._lane.close()

    async def flush(self) -> bool:
        """Write everything now; False when that took longer than a bound."""
        for _ in range(int(DRAIN_S / DRAIN_POLL_S)):
            # What is in flight is in no queue, and comes back to one when it is lost.
            if not (self._queued() or self._lane.busy):
                return True
            self._minutes.fold_all()
            self._rows_due = self._series_due = True
            self._lane.wake()
            await asyncio.sleep(DRAIN_POLL_S)
        return False

    def record(self, record: FinishedRequest) -> None:
        """Queue a finished request; drops the oldest and counts it when its bound is reached."""
        if len(self._rows) >= QUEUE_MAX:
            self._rows.popleft()
            self.dropped += 1
        self._rows.append(record)
        self.objectives.count(record)
        self._minutes.at(wall_s()).add(record)
        self._uncounted.append(record)
        if len(self._uncounted) >= ROWS_MAX:
            self._count()
        if record.trace is not None and self._traces is not None:
            self._traces.take(record)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(ROWS_FLUSH_S, self._flush_rows)

    def sample(self, depths: Iterable[series.QueueDepth]) -> None:
        self._minutes.at(wall_s()).sample(depths)

    def drafts(self, taken: Iterable[DraftedTokens]) -> None:
        """Count tokens that nodes drafted since the last call."""
        self._minutes.at(wall_s()).drafts(taken)

    def note(self, samples: Iterable[series.GaugeSample]) -> None:
        minute = self._minutes.at(wall_s())
        for sample in samples:
            minute.note(sample)

    def connected(self) -> None:
        """Nothing must come first: every write can be repeated."""

    def next_call(self) -> PreparedCall | None:
        """Rows that are due, then series that are due."""
        if self._repeats:
            return self._record_call(self._repeats.popleft())
        if self._rows and (self._rows_due or len(self._rows) >= ROWS_MAX):
            size = min(len(self._rows), ROWS_MAX)
            return self._record_call([self._rows.popleft() for _ in range(size)])
        self._rows_due = False
        if self._series_due:
            if (call := self.objectives.next_call(self._writer)) is not None:
                return call
            for minute in self._minutes.dirty():
                if (call := self._series_call(minute)) is not None:
                    return call
            self._series_due = False
        return None

    def _queued(self) -> bool:
        rows = self._rows or self._repeats
        return bool(rows or self._minutes.dirty() or self.objectives.dirty)

    def _flush_rows(self) -> None:
        self._timer = None
        self._count()
        self._rows_due = True
        self._lane.wake()

    async def _tick(self) -> None:
        for tick in count(1):
            await asyncio.sleep(SERIES_FLUSH_S)
            await self._fold(narrow=tick % NARROW_EVERY == 0)
            self._series_due = True
            self._lane.wake()

    async def _fold(self, *, narrow: bool) -> None:
        """Bit by bit: requests come first. What ends in the meantime waits for the next time."""
        for _ in range(FOLDS_MAX):
            if not self._minutes.fold(narrow=narrow):
                return
            await asyncio.sleep(0)

    def _record_call(self, rows: list[FinishedRequest]) -> PreparedCall:
        return PreparedCall(
            statement=b"record",
            parameters=partial(_row_parameters, rows),
            failed=partial(self._rows_failed, rows),
            lost=partial(self._repeats.append, rows),
        )

    def _rows_failed(self, rows: list[FinishedRequest], state: str, message: str) -> None:
        """One bad row makes PostgreSQL refuse all: each is tried once more by itself."""
        if len(rows) > 1:
            self._repeats.extend([row] for row in rows)
            return
        self.dropped += len(rows)
        self._log_refused("row", state, message)

    def _series_failed(self, count: int, state: str, message: str) -> None:
        self._series_refused += count
        self._log_refused("series", state, message)

    def _unencodable(self, key: series.SeriesKey, error: Exception) -> None:
        self._series_failed(1, "", f"{key}: {error}")

    def _log_refused(self, what: str, state: str, message: str) -> None:
        now = monotonic_s()
        if now - self._logged_at_s < LOG_REFUSED_S:
            return
        self._logged_at_s = now
        log.error(
            "telemetry_refused",
            what=what,
            rows_dropped=self.dropped,
            series_refused=self._series_refused,
            sqlstate=state,
            message=message,
        )

    def _series_call(self, minute: series.Minute) -> PreparedCall | None:
        """The next write of a minute; None where what is left is not yet to be written."""
        if minute.dirty_usage:
            return self._usage_call(minute)
        if minute.dirty:
            return self._merge_call(minute)
        return self._show_call(minute) if minute.exemplars else None

    def _merge_call(self, minute: series.Minute) -> PreparedCall:
        size = min(len(minute.dirty), KEYS_PER_CALL_MAX)
        keys = [minute.dirty.pop() for _ in range(size)]
        return PreparedCall(
            statement=b"merge",
            parameters=lambda: [self._writer, *_series_parameters(minute, keys, self._unencodable)],
            answered=self._series_written,
            failed=partial(self._series_failed, len(keys)),
            lost=partial(minute.dirty.update, keys),
        )

    def _usage_call(self, minute: series.Minute) -> PreparedCall:
        size = min(len(minute.dirty_usage), USAGE_PER_CALL_MAX)
        keys = [minute.dirty_usage.pop() for _ in range(size)]
        return PreparedCall(
            statement=b"count",
            parameters=lambda: [self._writer, *_usage_parameters(minute, keys)],
            answered=self._series_written,
            failed=partial(self._series_failed, len(keys)),
            lost=partial(minute.dirty_usage.update, keys),
        )

    def _show_call(self, minute: series.Minute) -> PreparedCall:
        # In one order everywhere: gateways write the same rows, and would wait for each other.
        shown = sorted(minute.exemplars[:EXEMPLARS_PER_CALL_MAX])
        del minute.exemplars[:EXEMPLARS_PER_CALL_MAX]
        return PreparedCall(
            statement=b"show",
            parameters=partial(_exemplar_parameters, minute.start_s, shown),
            answered=self._series_written,
            failed=partial(self._series_failed, len(shown)),
            lost=partial(minute.exemplars.extend, shown),
        )

    def _series_written(self, _: bytes | None) -> None:
        self._written_s = monotonic_s()


_owner = attrgetter("organization", "project", "key")
_words = attrgetter(
    "model", "route", "node", "pool", "region", "operation", "error_code", "finish", "safety",
    "user",
)  # fmt: skip


def _row_parameters(rows: Sequence[FinishedRequest]) -> list[bytes | None]:
    return [
        arrays.hex_array([r.request for r in rows]),
        arrays.int_array([r.started_us for r in rows]),
        arrays.nested_array(map(_owner, rows)),
        arrays.nested_array([[_figures(r)] for r in rows]),
        arrays.word_array(list(map(_words, rows))),
        arrays.hex_array([r.spans for r in rows]),
        arrays.hex_array([r.receipt for r in rows]),
    ]


def _figures(r: FinishedRequest) -> str:
    return (
        f"{r.cost_nano},{r.total_us},{r.ttft_us},{r.prompt_tokens},{r.cached_tokens},"
        f"{r.output_tokens},{r.status},{int(r.stream)}"
    )


def _series_parameters(
    minute: series.Minute,
    keys: Iterable[series.SeriesKey],
    unencodable: Callable[[series.SeriesKey, Exception], None],
) -> list[bytes | None]:
    """One that cannot be encoded is told, and keeps back no other."""
    rows: list[tuple[series.SeriesKey, str, str]] = []
    for key in keys:
        try:
            rows += [(key, name, made.to_bytes().hex()) for name, made in minute.rows(key)]
        except (struct.error, ArithmeticError, ValueError) as error:
            unencodable(key, error)
    return [
        arrays.int_array([minute.start_s] * len(rows)),
        arrays.plain_array([key.organization for key, _, _ in rows]),
        arrays.plain_array([key.project for key, _, _ in rows]),
        arrays.plain_array([measure for _, measure, _ in rows]),
        arrays.word_array([(key.model, key.route, key.pool, key.region) for key, _, _ in rows]),
        arrays.int_array([key.prompt_bucket for key, _, _ in rows]),
        arrays.int_array([key.status_class for key, _, _ in rows]),
        arrays.plain_array([data for _, _, data in rows]),
    ]


def _exemplar_parameters(minute_s: int, shown: Sequence[NewExemplar]) -> list[bytes | None]:
    return [
        arrays.nested_array([(*each.owner[:2], each.request.hex()) for each in shown]),
        arrays.plain_array([each.measure for each in shown]),
        arrays.text_array([each.owner[2] for each in shown]),
        arrays.nested_array([map(str, (minute_s, each.octave, each.value_us)) for each in shown]),
    ]


def _usage_parameters(minute: series.Minute, keys: Sequence[series.UsageKey]) -> list[bytes | None]:
    return [
        arrays.int_array([minute.start_s] * len(keys)),
        arrays.plain_array([key[0] for key in keys]),
        arrays.plain_array([key[1] for key in keys]),
        arrays.plain_array([key[2] for key in keys]),
        arrays.text_array([key[3] for key in keys]),
        arrays.text_array([key[4] for key in keys]),
        arrays.text_array([key[5] for key in keys]),
        arrays.nested_array([map(str, minute.usage[key]) for key in keys]),
    ]
