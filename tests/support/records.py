"""Finished requests for tests of telemetry."""

from __future__ import annotations

from typing import Any

from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel.clock import wall_us
from controlplane.kernel.ids import new_request_id
from controlplane.kernel.spans import SPANS, pack_spans
from tests.support.money import ALICE_KEY, ORG_A, PROJECT_A


def make_record(**changes: Any) -> FinishedRequest:
    """Alice's streamed chat of twenty tokens, with some fields changed."""
    fields: dict[str, Any] = {
        "request": new_request_id(),
        "started_us": wall_us(),
        "organization": ORG_A.hex,
        "project": PROJECT_A.hex,
        "key": ALICE_KEY.hex,
        "model": "sluice-5m",
        "route": "direct",
        "node": "node-1",
        "pool": "default",
        "region": "local",
        "operation": "chat",
        "status": 200,
        "error_code": "",
        "finish": "stop",
        "stream": True,
        "prompt_tokens": 30,
        "available_tokens": 24,
        "captured_tokens": 20,
        "cached_tokens": 16,
        "output_tokens": 20,
        "total_us": 90_000,
        "ttft_us": 20_000,
        "inter_token_us": [3_500] * 19,
        "cost_nano": 96,
        "spans": pack_spans(range(len(SPANS)), range(100, 100 + len(SPANS))),
        "receipt": b'{"node":"node-1"}',
        "safety": "",
        "client_rtt_us": 700,
    }
    return FinishedRequest(**{**fields, **changes})
