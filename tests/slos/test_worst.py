"""The worst requests of a window: bad as gateways judge, ranked, and what they share."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel.measures import prompt_bucket
from controlplane.kernel.objectives.burn import MILLION
from controlplane.kernel.objectives.counting import (
    ALL_BUCKETS,
    INDICATORS,
    IndicatorPart,
    WatchedObjective,
    judge,
)
from controlplane.kernel.spans import ABSENT, INDEX, SPANS, pack_spans
from controlplane.slos import worst
from controlplane.slos.models import EVERYONE, Alert, Objective
from controlplane.slos.worst import WORST_MAX, Worst, alert_window, worst_requests
from tests.support.money import ORG_A, ORG_C, PROJECT_A
from tests.support.records import make_record
from tests.support.traffic import store

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)
LIMIT_US = 100_000


def _spans(**times: int) -> bytes:
    starts, lengths = [ABSENT] * len(SPANS), [0] * len(SPANS)
    for name, us in times.items():
        starts[INDEX[name.replace("__", ".")]] = 0
        lengths[INDEX[name.replace("__", ".")]] = us
    return pack_spans(starts, lengths)


def _timed(us: int, **more: Any) -> FinishedRequest:
    """Everything of it takes so long; a token a nineteenth of that."""
    gap = us // 19
    return make_record(
        total_us=3 * us,
        ttft_us=us,
        inter_token_us=[gap] * 19,
        spans=_spans(**dict.fromkeys(_STAGES, us), s5_infer__decode=gap * 19),
        **more,
    )


_STAGES = tuple(one for one in INDEX if "." not in one)


def _objective(indicator: str, threshold: int = LIMIT_US, **scope: Any) -> Objective:
    return Objective(
        organization=EVERYONE, indicator=indicator, threshold=threshold, target_ppm=990_000, **scope
    )


def _worst(objective: Objective, *organizations: uuid.UUID, nodes: bool = True) -> Worst:
    return worst_requests(
        objective=objective,
        organizations=organizations or (ORG_A, ORG_C),
        window=(NOW - HOUR, NOW + HOUR),
        nodes=nodes,
    )


@pytest.fixture
def mixed(database: str) -> list[FinishedRequest]:
    made = [
        _timed(LIMIT_US - 1_000),
        _timed(LIMIT_US + 19_000),
        _timed(LIMIT_US * 5, stream=False),
        _timed(LIMIT_US * 2, status=499),
        _timed(LIMIT_US * 2, status=400, error_code="invalid"),
        _timed(LIMIT_US * 2, status=429, error_code="rate_limit_exceeded"),
        make_record(status=503, error_code="shed_for_objective", ttft_us=-1, spans=_spans()),
        make_record(status=503, error_code="server_is_overloaded", ttft_us=-1, spans=_spans()),
        make_record(status=429, error_code="server_is_overloaded", ttft_us=-1, spans=_spans()),
        make_record(status=499, ttft_us=-1, output_tokens=0, spans=_spans()),
        make_record(status=503, error_code="ledger_unavailable", spans=_spans(s7_bill=5)),
        make_record(prompt_tokens=100, cached_tokens=0, spans=_spans()),
        make_record(prompt_tokens=100, cached_tokens=90, spans=_spans()),
        make_record(prompt_tokens=0, cached_tokens=0, output_tokens=0, spans=_spans()),
    ]
    store(made)
    return made


@pytest.mark.parametrize("indicator", INDICATORS)
def test_what_is_bad_is_what_gateways_judge_bad(
    mixed: list[FinishedRequest], indicator: str
) -> None:
    threshold = {"inter_token": LIMIT_US // 19, "cache_hit": MILLION // 2}.get(indicator, LIMIT_US)
    watched = WatchedObjective(
        id="0" * 32, version=1, organization="0" * 32, indicator=indicator, threshold=threshold
    )
    bad = {
        uuid.UUID(bytes=one.request)
        for one in mixed
        if judge(watched, one, prompt_bucket(one.prompt_tokens)) is False
    }
    found = _worst(_objective(indicator, threshold))
    assert bad and {row.request for row in found.rows} == bad
    assert found.requests == len(mixed)


@pytest.mark.parametrize("indicator", ["all_of", "any_of"])
@pytest.mark.parametrize(
    "parts",
    [
        (IndicatorPart("ttft", LIMIT_US), IndicatorPart("total", LIMIT_US)),
        (
            IndicatorPart("availability"),
            IndicatorPart("total", LIMIT_US),
            IndicatorPart("billing_timeliness", 9),
        ),
        (
            IndicatorPart("cache_hit", MILLION // 2),
            IndicatorPart("stage:s7_bill", 1),
            IndicatorPart("overhead", LIMIT_US),
        ),
    ],
)
def test_what_is_bad_by_several_parts_is_what_gateways_judge_bad(
    mixed: list[FinishedRequest], indicator: str, parts: tuple[IndicatorPart, ...]
) -> None:
    watched = WatchedObjective(
        id="0" * 32, version=1, organization="0" * 32, indicator=indicator, threshold=0, parts=parts
    )
    bad = {
        uuid.UUID(bytes=one.request)
        for one in mixed
        if judge(watched, one, prompt_bucket(one.prompt_tokens)) is False
    }
    found = _worst(_objective(indicator, 0, parts=msgspec.to_builtins(parts)))
    assert bad and {row.request for row in found.rows} == bad


def test_the_longest_come_first_and_there_are_ten(database: str) -> None:
    store([_timed(LIMIT_US + 1_000 * place) for place in range(1, 15)])
    rows = _worst(_objective("ttft")).rows
    assert [row.ttft_us for row in rows] == [LIMIT_US + 1_000 * place for place in range(14, 4, -1)]
    assert len(rows) == WORST_MAX and vars(rows[0])["badness"] == rows[0].ttft_us


@pytest.mark.parametrize(
    ("scope", "fits"),
    [
        ({"model": "small"}, lambda one: one.model == "small"),
        ({"route": "tier"}, lambda one: one.route == "tier"),
        ({"project": PROJECT_A}, lambda one: one.project == PROJECT_A.hex),
        ({"pool": "gold"}, lambda one: one.pool == "gold"),
        ({"region": "eu"}, lambda one: one.region == "eu"),
        ({"prompt_bucket": 2}, lambda one: 1_024 < one.prompt_tokens <= 4_096),
        ({"organization": ORG_C}, lambda one: one.organization == ORG_C.hex),
        ({"prompt_bucket": ALL_BUCKETS}, lambda one: True),
    ],
)
def test_only_requests_of_the_scope_are_looked_at(
    database: str, scope: dict[str, Any], fits: Callable[[FinishedRequest], bool]
) -> None:
    slow = LIMIT_US * 2
    other = uuid.uuid4().hex
    made = [
        _timed(slow, model="small", project=other),
        _timed(slow, route="tier", project=other),
        _timed(slow, pool="gold", project=other),
        _timed(slow, region="eu", project=other),
        _timed(slow),
        _timed(slow, prompt_tokens=2_000, project=other),
        _timed(slow, organization=ORG_C.hex, project=other),
    ]
    store(made)
    objective = _objective("ttft")
    for name, value in scope.items():
        setattr(objective, name, value)
    found = {row.request for row in _worst(objective).rows}
    assert found == {uuid.UUID(bytes=one.request) for one in made if fits(one)}


def test_what_they_share_is_told_against_the_rest_and_nodes_only_to_who_may_see_them(
    database: str,
) -> None:
    store(
        [
            *(_timed(LIMIT_US * 2, node="node-2", model="large") for _ in range(8)),
            *(_timed(LIMIT_US * 2, node="node-1") for _ in range(2)),
            *(_timed(1_000, node="node-1") for _ in range(40)),
            *(_timed(1_000, node="node-1", model="large") for _ in range(4)),
        ]
    )
    found = _worst(_objective("ttft"))
    (node, model) = found.common
    assert (node.dimension, node.value, node.having, node.rest_share) == ("node", "node-2", 8, 0.0)
    assert (model.dimension, model.value, model.having) == ("model", "large", 8)
    assert model.rest_share == pytest.approx(4 / 44)
    hidden = _worst(_objective("ttft"), nodes=False)
    assert [one.dimension for one in hidden.common] == ["model"]
    assert {row.node for row in hidden.rows} == {""}


def test_requests_of_organizations_that_are_not_ones_own_are_not_told(database: str) -> None:
    store([_timed(LIMIT_US * 2), _timed(LIMIT_US * 2, organization=ORG_C.hex)])
    (row,) = _worst(_objective("ttft"), ORG_C).rows
    assert row.organization == ORG_C


def test_an_alerts_window_begins_with_the_long_window_that_set_it_off() -> None:
    fired = Alert(created_at=NOW - 2 * HOUR, rule="page_quick", recovered_at=NOW - HOUR)
    assert alert_window(fired, NOW) == (NOW - 3 * HOUR, NOW - HOUR)
    slow = Alert(created_at=NOW - HOUR, rule="ticket_slow")
    assert alert_window(slow, NOW) == (NOW - timedelta(days=1), NOW)
    assert alert_window(None, NOW) == (NOW - HOUR, NOW)


def test_all_are_counted_where_too_many_kinds_are_compared(
    mixed: list[FinishedRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _worst(_objective("total"))
    monkeypatch.setattr(worst, "GROUPS_MAX", 1)
    assert _worst(_objective("total")).requests == whole.requests == len(mixed)
