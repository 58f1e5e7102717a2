"""A past for browser tests: requests, series and ledger lines, through the real functions."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import psycopg

from controlplane.billing.ledger import services as ledger
from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.bridge.postgres.arrays import WORD_SEPARATOR
from controlplane.bridge.record.recorder import PostgresRecorder
from controlplane.bridge.record.series import Minute, QueueDepth
from controlplane.gateway.ports import FinishedRequest, Hold, Settlement
from controlplane.kernel.price import Price, TokenCounts, charge_nano
from controlplane.kernel.spans import ABSENT, SPANS, pack_spans
from controlplane.kernel.statuses import CLIENT_LEFT
from controlplane.telemetry import services as telemetry
from controlplane.tenants.models import ApiKey
from tests.support.money import dsn
from tests.support.people import Cast
from tests.support.waiting import until

HOURS = 3
CONNECT_S_MAX = 20.0
REQUESTS = 360
PRICE = Price(version=1, input_pico=150_000, cached_pico=15_000, output_pico=600_000)
SAMPLES_A_REQUEST = 4
HOLD_NANO = 2_000_000
REFUSED = (
    b'{"limit":{"kind":"requests","scope":"project","limit":60,"retry_after_ms":740,'
    b'"reset_ms":59740}}'
)
LIMITED = 429
FAILURES = (
    (LIMITED, "rate_limit_exceeded"),
    (503, "server_is_overloaded"),
    (CLIENT_LEFT, ""),
)
# Microseconds that a layer usually takes; the node's parts depend on the request.
TYPICAL_US = {
    "authenticate": 18, "body": 40, "schema": 85, "limits": 12, "hold": 900,
    "proximity": 2, "health": 5, "load": 3,
    "template": 60, "encode": 350, "window": 2, "blocks": 30,
    "rules": 3, "prefix": 8, "node": 15, "saturation": 4,
    "detokenize": 180, "stop": 25, "serialize": 240, "price": 6, "settle": 850,
}  # fmt: skip


def write_history(cast: Cast, key: ApiKey, model: str, *, age_s: int = 0) -> list[uuid.UUID]:
    """Ids of Acme's requests of three hours that ended so long ago, oldest first."""
    dice = random.Random(7 + age_s)
    now = datetime.now(UTC) - timedelta(seconds=age_s)
    records = [
        _record(dice, cast, key, model, now - timedelta(seconds=seconds))
        for seconds in _moments(dice)
    ]
    for app in (ledger, telemetry):
        app.make_partitions(now - timedelta(hours=HOURS))
    asyncio.run(_write(records))
    _write_series(records)
    return [uuid.UUID(bytes=record.request) for record in records]


def _moments(dice: random.Random) -> list[float]:
    return sorted((dice.uniform(1, HOURS * 3_600) for _ in range(REQUESTS)), reverse=True)


def _record(
    dice: random.Random, cast: Cast, key: ApiKey, model: str, at: datetime
) -> FinishedRequest:
    failed = dice.random() < 0.04
    status, error_code = dice.choice(FAILURES) if failed else (200, "")
    busy = 1 + 2 * abs(dice.gauss(0, 1)) * (at.minute % 30 > 20)
    prompt = dice.randint(40, 1_400)
    cached = 0 if dice.random() < 0.3 else prompt * 6 // 10 // 16 * 16
    output = 0 if failed else dice.randint(12, 150)
    gap_us = int(3_400 * busy * dice.uniform(0.8, 1.3))
    spans, total_us, ttft_us = _spans(dice, prompt - cached, output, gap_us, int(4_000 * busy))
    counts = TokenCounts(uncached=prompt - cached, cached=cached, output=output)
    return FinishedRequest(
        request=_request_id(dice, at),
        started_us=int(at.timestamp() * 1e6),
        organization=cast.acme.id.hex,
        project=cast.project.id.hex,
        key=key.id.hex,
        model=model,
        route="direct",
        node="" if failed else "node-1",
        pool="default",
        region="local",
        operation="chat",
        status=status,
        error_code=error_code,
        finish="" if failed else dice.choice(("stop", "stop", "length")),
        stream=dice.random() < 0.8,
        prompt_tokens=0 if failed else prompt,
        available_tokens=0 if failed else min(prompt, cached + 32),
        captured_tokens=0 if failed else cached,
        cached_tokens=0 if failed else cached,
        output_tokens=output,
        total_us=1_400 if failed else total_us,
        ttft_us=-1 if failed else ttft_us,
        inter_token_us=[gap_us] * max(0, output - 1),
        cost_nano=0 if failed else charge_nano(PRICE, counts),
        spans=_spans_refused() if failed else spans,
        receipt=(REFUSED if status == LIMITED else b"") if failed else _receipt(prompt, cached),
        safety="",
    )


def _request_id(dice: random.Random, at: datetime) -> bytes:
    milliseconds = int(at.timestamp() * 1_000)
    value = (milliseconds << 80) | (0x7 << 76) | (0b10 << 62) | dice.getrandbits(61)
    return value.to_bytes(16, "big")


def _spans_refused() -> bytes:
    starts = [ABSENT] * len(SPANS)
    lengths = [0] * len(SPANS)
    for span in SPANS[:5]:
        if span.layer != "arrival":
            starts[span.index], lengths[span.index] = span.index * 40, 300 if span.layer else 1_350
    return pack_spans(starts, lengths)


def _receipt(prompt: int, cached: int) -> bytes:
    """Why it went where it did, as its figures say."""
    missed = prompt - cached
    nodes = ("node-1", cached, 0, 3, 14.2), ("node-2", 0, 512, 1, 61.75)
    names = ("node", "cached_tokens", "queued_tokens", "active", "cost_ms")
    around = {
        "before": "You help guests of the hotel. It is ", "was": "09:58:12", "now": "10:04:47",
        "after": ". Answer briefly",
    }  # fmt: skip
    told = {
        "rule": "direct", "node": "node-1", "index": "exact", "predicted_cached_tokens": cached,
        "why": f"node-1 had {cached} of {prompt} prompt tokens cached and the lowest expected cost",
        "available_tokens": min(prompt, cached + 32),
        "candidates": [dict(zip(names, each, strict=True)) for each in nodes],
        "miss": {
            "cause": "timestamp", "missed_tokens": missed, "avoidable_tokens": missed * 9 // 10,
            "block": cached // 32, "token": cached + 5, "cost_nano": missed * 135,
            "prefill_ms": round(missed * 0.08, 1), "around": around,
        },
    }  # fmt: skip
    return json.dumps(told, separators=(",", ":")).encode()


def _spans(
    dice: random.Random, uncached: int, output: int, gap_us: int, queue_us: int
) -> tuple[bytes, int, int]:
    starts, lengths = [ABSENT] * len(SPANS), [0] * len(SPANS)
    node = {
        "network": 700,
        "queue": int(queue_us * dice.uniform(0.2, 1.5)),
        "prefill": uncached * 80 + 4_000,
        "decode": gap_us * output,
    }
    at, ttft = 0, 0
    for span in SPANS:
        if not span.layer:
            stage, begins = span, at
            starts[stage.index] = begins
            continue
        if span.layer in ("safety", "arrival"):
            continue
        starts[span.index] = at
        took = node.get(span.layer, int(TYPICAL_US.get(span.layer, 0) * dice.uniform(0.7, 1.6)))
        lengths[span.index] = took
        if span.layer == "decode":
            ttft = at
        at += took
        lengths[stage.index] = at - begins
    starts[0] = 0
    arrival = next(span for span in SPANS if span.layer == "arrival")
    starts[arrival.index], lengths[arrival.index] = -2_300, 2_300
    return pack_spans(starts, lengths), at + 350, ttft


async def _write(records: list[FinishedRequest]) -> None:
    recorder, ledger = PostgresRecorder(dsn()), PostgresLedger(dsn())
    recorder.start()
    ledger.start()
    await until(lambda: not ledger.away, CONNECT_S_MAX)
    paid = [record for record in records if record.cost_nano]
    await asyncio.gather(*(ledger.hold(_hold(record)) for record in paid))
    await asyncio.gather(*(ledger.settle(_settlement(record)) for record in paid))
    for record in records:
        recorder._rows.append(record)
    await recorder.flush()
    await recorder.close()
    await ledger.close()


def _hold(record: FinishedRequest) -> Hold:
    return Hold(
        request=record.request,
        organization=record.organization,
        project=record.project,
        key=record.key,
        budgets=(),
        amount_nano=HOLD_NANO,
        model=record.model,
        price=PRICE,
        expires_s=600,
    )


def _settlement(record: FinishedRequest) -> Settlement:
    return Settlement(
        request=record.request,
        organization=record.organization,
        project=record.project,
        key=record.key,
        budgets=(),
        held_nano=HOLD_NANO,
        amount_nano=record.cost_nano,
        counts=TokenCounts(
            uncached=record.prompt_tokens - record.cached_tokens,
            cached=record.cached_tokens,
            output=record.output_tokens,
        ),
        model=record.model,
        price=PRICE,
        source="node",
    )


def _write_series(records: list[FinishedRequest]) -> None:
    """Minutes as a gateway that ran all the time would have written them."""
    minutes: dict[int, Minute] = {}
    for record in records:
        start_s = record.started_us // 60_000_000 * 60
        minute = minutes.setdefault(start_s, Minute(start_s))
        minute.add(record)
        for second in range(SAMPLES_A_REQUEST):
            waiting = (second + start_s // 60) % 4
            urgent = (waiting // 3, waiting - waiting // 3, 0)
            depth = QueueDepth("", waiting, second % 2, urgent, 400 * waiting)
            minute.sample([depth, depth._replace(model=record.model)])
    writer = uuid.uuid4()
    merge = [row for minute in minutes.values() for row in _series(minute)]
    count = [row for minute in minutes.values() for row in _usage(minute)]
    with psycopg.connect(dsn(), autocommit=True) as connection:
        connection.execute(
            "SELECT telemetry_merge(%s, %s::bigint[], %s::uuid[], %s::uuid[], %s::text[],"
            " %s::text[], %s::smallint[], %s::smallint[], %s::text[])",
            [writer, *_columns(merge)],
        )
        connection.execute(
            "SELECT telemetry_count(%s, %s::bigint[], %s::uuid[], %s::uuid[], %s::uuid[],"
            " %s::text[], %s::text[], %s::text[], %s::text[])",
            [writer, *_columns(count)],
        )


def _series(minute: Minute) -> Iterator[tuple[object, ...]]:
    minute.fold_all()
    for key in minute.dirty:
        names = WORD_SEPARATOR.join((key.model, key.route, key.pool, key.region))
        for measure, histogram in minute.rows(key):
            data = histogram.to_bytes().hex()
            yield (minute.start_s, key.organization, key.project, measure, names,
                   key.prompt_bucket, key.status_class, data)  # fmt: skip


def _usage(minute: Minute) -> Iterator[tuple[object, ...]]:
    for key, counts in minute.usage.items():
        yield minute.start_s, *key, "{" + ",".join(map(str, counts)) + "}"


def _columns(rows: Iterable[tuple[object, ...]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]
