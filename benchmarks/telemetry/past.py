"""A past of 30 days and 100 million requests: roll-ups and minutes as they would have been left.

Whole are the steps that pages of 30 days and of an hour read; finer ones go back as far as these
pages read them. Every series has one of a few shapes, drawn at random once.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache

import psycopg

from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import HEADLINES, MEASURES, OWN_MEASURES, REQUEST_EVENTS
from controlplane.telemetry import services
from controlplane.telemetry.selectors import EVERYONE
from controlplane.telemetry.tiers import MINUTE_S, step_floor
from tests.support.money import superuser_dsn

REQUESTS = 100_000_000
DAYS = 30
MODELS = ("sluice-5m", "model-b", "model-c", "model-d")
ROUTES = ("direct", "support: small first", "batch: night")
POOLS, REGIONS = ("default", "gpu"), ("eu", "us")
BUCKETS, STATUSES = 6, (2, 4, 5)
PROJECTS, KEYS = 8, 3
SHAPES = 8
SAMPLES = 1_500
# How far back each step goes.
TIERS = (
    (86_400, timedelta(days=DAYS + 1)),
    (21_600, timedelta(days=DAYS + 1)),
    (3_600, timedelta(days=2)),
    (300, timedelta(hours=8)),
    (60, timedelta(hours=2)),
)
WRITER = "gen_random_uuid(),"


def write_past(organization: uuid.UUID, project: uuid.UUID) -> int:
    """Fill the tables of series and usage; answers with the rows written."""
    now = datetime.now(UTC)
    services.make_partitions(now)
    written = 0
    with psycopg.connect(superuser_dsn()) as connection, connection.cursor() as cursor:
        _make_shapes(cursor, organization, project)
        for step_s, back in TIERS:
            times = list(_times(now, step_s, back))
            table, columns, extra = "histogram_rollups", "step_s, at", f"{step_s},"
            if step_s == MINUTE_S:
                table, columns, extra = "histogram_minutes", "writer, minute", WRITER
            cursor.execute(
                f"INSERT INTO {table} ({columns}, organization, project, measure, model, route,"
                " pool, region, prompt_bucket, status_class, data)"
                f" SELECT {extra} t, organization, project, measure, model, route, pool, region,"
                " prompt_bucket, status_class, data"
                " FROM shapes, unnest(%s::timestamptz[]) WITH ORDINALITY AS u(t, n)"
                f" WHERE step_s = %s AND shape = n %% {SHAPES}",
                [times, step_s],
            )
            written += cursor.rowcount
            written += _write_usage(cursor, (organization, project), step_s, times)
        connection.commit()
        connection.autocommit = True
        cursor.execute("ANALYZE")
    return written


def _times(now: datetime, step_s: int, back: timedelta) -> Iterator[datetime]:
    at = step_floor(now - back, step_s)
    while at <= now:
        yield at
        at += timedelta(seconds=step_s)


def _make_shapes(cursor: psycopg.Cursor, organization: uuid.UUID, project: uuid.UUID) -> None:
    cursor.execute(
        "CREATE TEMP TABLE shapes (step_s integer, shape integer, organization uuid, project uuid,"
        " measure text, model text, route text, pool text, region text, prompt_bucket smallint,"
        " status_class smallint, data bytea)"
    )
    columns = "COPY shapes FROM STDIN"
    with cursor.copy(columns) as copy:
        for step_s, _ in TIERS:
            requests = REQUESTS * step_s // (DAYS * 86_400)
            for key, share in _keys(organization, project):
                count = max(1, round(requests * share))
                for shape in range(SHAPES):
                    copy.write_row((step_s, shape, *key, _scaled(shape, count)))


@cache
def _scaled(shape: int, count: int) -> bytes:
    """About `count` values, spread in one of some ways."""
    dice = random.Random(shape)
    middle, width = dice.uniform(7, 12), dice.uniform(0.4, 0.9)
    made = Histogram()
    for _ in range(min(count, SAMPLES)):
        made.record(round(dice.lognormvariate(middle, width)))
    if count > SAMPLES:
        more = Histogram({index: n * count // SAMPLES for index, n in made.buckets.items()})
        more.total, more.maximum = made.total * count // SAMPLES, made.maximum
        made = more
    return made.to_bytes()


def _keys(
    organization: uuid.UUID, project: uuid.UUID
) -> Iterator[tuple[tuple[object, ...], float]]:
    """Every series with its share of all requests."""
    wide, none = (*MEASURES, *REQUEST_EVENTS), ("", "", "", -1, -1)
    for model in ("", *MODELS):
        for measure in wide:
            yield (EVERYONE, EVERYONE, measure, model, *none), 1.0 if not model else 0.25
    for model in MODELS:
        for dimension, values in enumerate((ROUTES, POOLS, REGIONS, range(BUCKETS), STATUSES)):
            for value in values:
                where = [*none]
                where[dimension] = value
                for measure in (*HEADLINES, *REQUEST_EVENTS):
                    yield (EVERYONE, EVERYONE, measure, model, *where), 0.25 / len(values)
    others = [uuid.UUID(int=number) for number in range(1, PROJECTS)]
    for own in (EVERYONE, project, *others):
        for model in ("", *MODELS):
            for measure in OWN_MEASURES:
                yield (organization, own, measure, model, *none), 0.1


def _write_usage(
    cursor: psycopg.Cursor,
    owner: tuple[uuid.UUID, uuid.UUID],
    step_s: int,
    times: list[datetime],
) -> int:
    organization, project = owner
    rows = [
        (
            organization,
            home,
            uuid.UUID(int=100 + 10 * place + number),
            model,
            route,
        )
        for place, home in enumerate(
            (project, *(uuid.UUID(int=number) for number in range(1, PROJECTS)))
        )
        for number in range(KEYS)
        for model in MODELS
        for route in ROUTES
    ]
    table, columns, extra = "usage_rollups", "step_s, at", f"{step_s},"
    if step_s == MINUTE_S:
        table, columns, extra = "usage_minutes", "writer, minute", WRITER
    n = max(1, REQUESTS * step_s // (DAYS * 86_400) // len(rows))
    cursor.execute(
        f"INSERT INTO {table} ({columns}, organization, project, key, model, route, requests,"
        " errors, gone, uncached, cached, output, nano, available, captured)"
        f" SELECT {extra} t, r.*, {n}, {n // 50}, {n // 90}, {n * 400}, {n * 600}, {n * 120},"
        f" {n * 9_000}, {n * 700}, {n * 650}"
        " FROM unnest(%s::uuid[], %s::uuid[], %s::uuid[], %s::text[], %s::text[]) AS r,"
        " unnest(%s::timestamptz[]) AS t",
        [*(list(column) for column in zip(*rows, strict=True)), times],
    )
    return cursor.rowcount
