"""What the database says of the requests that were played, once the gateway has ended."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

from controlplane.kernel.spans import ABSENT, SPANS, unpack_spans
from tests.support.money import rows

# Times, which no two runs have alike; of the first token only whether there was one.
TIMES = ("started_at", "total_us", "spans", "receipt")
USAGE = ("requests", "errors", "gone", "uncached", "cached", "output", "nano", "available",
         "captured")  # fmt: skip


def books(journal: Path) -> dict[str, dict[str, Any]]:
    """Ledger, record, claim and job of each request, by its id in hex."""
    found: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for request, line in rows(
        "SELECT request, to_jsonb(t) - 'booked_at' - 'request' FROM transfers t"
        " ORDER BY request, slot"
    ):
        found[request.hex].setdefault("ledger", []).append(_told(line))
    for (request,) in rows("SELECT request FROM open_holds"):
        found[request.hex]["hold"] = "open"
    for request, line, spans, receipt in rows(
        "SELECT request, to_jsonb(r) - 'request', spans, receipt FROM request_records r"
        " ORDER BY request"
    ):
        found[request.hex] |= _record(line, bytes(spans), bytes(receipt))
    for request, state, kept in rows(
        "SELECT request, state, answer IS NOT NULL FROM inference_claims ORDER BY request"
    ):
        found[request.hex]["claim"] = f"{state}, {'kept' if kept else 'not kept'}"
    for line in journal.read_text().splitlines():
        job = json.loads(line)
        found[job["request"]].setdefault("jobs", []).append(job["job"])
    return found


def _record(line: dict[str, Any], spans: bytes, receipt: bytes) -> dict[str, Any]:
    record = {name: value for name, value in line.items() if name not in TIMES}
    record["ttft_us"] = "some" if line["ttft_us"] >= 0 else line["ttft_us"]
    return {"record": _told(record), "spans": _ran(spans), "receipt": receipt.decode()}


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """Without the columns that say nothing."""
    return {name: value for name, value in row.items() if value not in (None, "", 0, False)}


def _ran(spans: bytes) -> str:
    """The spans that ran: each stage with its layers."""
    times = zip(SPANS, unpack_spans(spans), strict=True)
    ran = [span.layer or f"/ {span.stage}:" for span, (start, _) in times if start != ABSENT]
    return " ".join(ran).removeprefix("/ ")


def sums() -> dict[str, list[list[Any]]]:
    """What was counted over all requests: usage by key and route, and budgets."""
    columns = ", ".join(f"sum({name})::bigint" for name in USAGE)
    return {
        "usage": [
            [_texts(key), model, route, pool, dict(zip(USAGE, counts, strict=True))]
            for key, model, route, pool, *counts in rows(
                f"SELECT key, model, route, pool, {columns} FROM usage_minutes"
                " GROUP BY key, model, route, pool ORDER BY key, model, route, pool"
            )
        ],
        "budgets": [
            [_texts(budget), scope, dict(zip(("lim", "posted", "held", "over"), left, strict=True))]
            for budget, scope, *left in rows(
                "SELECT id, scope, lim, posted, held, over FROM budgets ORDER BY id"
            )
        ],
    }


def _texts(value: uuid.UUID) -> str:
    return value.hex
