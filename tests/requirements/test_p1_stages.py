"""P1: the seven stages in order, each a span with layers, and network time to and from the node."""

from __future__ import annotations

from controlplane.kernel.spans import ABSENT, SPANS, STAGES, unpack_spans
from tests.support.serving import Serving

LAYERS_MIN = 14


async def test_one_request_has_all_stages_and_layers_with_times(serving: Serving) -> None:
    await serving.chat()
    await serving.under_test.at_rest()
    (record,) = serving.under_test.recorder.records
    times = dict(zip((span.name for span in SPANS), unpack_spans(record.spans), strict=True))
    ran = {name: start for name, (start, _) in times.items() if start != ABSENT}
    starts = [ran[stage] for stage, _, _ in STAGES]
    assert starts == sorted(starts)
    assert len([name for name in ran if "." in name]) >= LAYERS_MIN
    assert {"s5_infer.network", "s5_infer.queue", "s5_infer.prefill", "s5_infer.decode"} <= {*ran}
    stages = sum(times[stage][1] for stage, _, _ in STAGES)
    assert 0 < stages <= record.total_us
