"""What a request's page knows of its hour and of its node at that time, read for `causes`."""

from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from controlplane.fleet.moments import NodeLoadThen, node_state
from controlplane.kernel.receipt import Receipt
from controlplane.telemetry.models import RequestRecord
from controlplane.telemetry.usual import Sharing, UsualHour, request_sharing, usual_hour
from frontend.requests.causes import (
    MEASURE_OF,
    TOTAL,
    UNATTRIBUTED,
    CauseFacts,
    Explained,
    Usual,
    compare,
    likeliest,
    pace,
)
from frontend.requests.waterfall import DECODE, Waterfall
from frontend.shared.access import Viewer
from frontend.shared.asked import in_time

TTFT = "ttft"


@dataclass(frozen=True)
class Moment:
    """One request beside its hour: by span, as a whole, and what explains it.

    `hour` and `sharing` are None where they could not be read in time, `state` where nothing is
    kept of that time or it is not the viewer's to see.
    """

    hour: UsualHour | None = None
    by_span: dict[str, Usual] = field(default_factory=dict)
    total: Usual | None = None
    ttft: Usual | None = None
    pace: Usual | None = None
    explained: Explained | None = None
    state: NodeLoadThen | None = None
    sharing: Sharing | None = None


def read_moment(
    viewer: Viewer,
    organizations: list[UUID],
    record: RequestRecord,
    waterfall: Waterfall,
    known: tuple[Receipt, str],
) -> Moment:
    """Of a request that a model served; `known` are its receipt and why its prompt was missed."""
    if not record.model or not record.output_tokens:
        return Moment()
    hour = in_time(lambda: usual_hour(record))
    sharing = in_time(lambda: request_sharing(organizations, record))
    state = _state(viewer, record)
    series = hour.series if hour else {}
    spans = {bar.name: bar.duration_us for bar in waterfall.bars}
    times = {MEASURE_OF.get(name, name): us for name, us in spans.items()}
    whole = {
        TOTAL: record.total_us,
        TTFT: record.ttft_us if record.ttft_us >= 0 else None,
        UNATTRIBUTED: waterfall.unattributed_us,
    }
    usual = compare(series, times | whole)
    gap = pace(series, spans[DECODE], record.output_tokens)
    receipt, miss = known
    facts = CauseFacts(
        total_us=record.total_us,
        usual=usual,
        gap=gap,
        output_tokens=record.output_tokens,
        uncached_tokens=record.prompt_tokens - record.cached_tokens,
        miss=miss,
        position=receipt.queue.position if receipt.queue else None,
        node=record.node,
        running=state.running if state else None,
        cpu_permille=state.cpu_permille if state else None,
        kv_permille=state.kv_permille if state else None,
        sharers=sharing.requests if sharing else None,
        failed_nodes=len(receipt.attempts),
    )
    return Moment(
        hour=hour,
        by_span={
            name: usual[MEASURE_OF.get(name, name)]
            for name in spans
            if MEASURE_OF.get(name, name) in usual
        },
        total=usual.get(TOTAL),
        ttft=usual.get(TTFT),
        pace=gap,
        explained=likeliest(facts) if hour else None,
        state=state,
        sharing=sharing,
    )


def _state(viewer: Viewer, record: RequestRecord) -> NodeLoadThen | None:
    if not (viewer.sees_fleet and record.node):
        return None
    end = record.started_at + timedelta(microseconds=record.total_us)
    return node_state(user=viewer.user, name=record.node, start=record.started_at, end=end)
