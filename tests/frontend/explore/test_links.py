"""Ways from other pages' charts into Explore, and the names of groups."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import parse_qsl

import pytest

from frontend.cache import figures as cache
from frontend.explore.question import question_from
from frontend.explore.reads import narrowed_to, value_words
from frontend.latency import figures as latency
from frontend.shared.asked import asked_from
from frontend.shared.exploring import CHARTS, explore_query

NOW = datetime(2026, 11, 21, 9, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("chart", "given", "wanted"),
    [
        ("inter_token", {"model": "tiny"},
         {"by": "time", "measure": "inter_token", "model": "tiny"}),
        ("buckets", {"compare": "previous"}, {"by": "prompt_bucket", "measure": "ttft",
                                              "compare": "previous"}),
        ("heat", {"measure": "prefill"}, {"by": "time", "measure": "prefill"}),
        ("heat", {"measure": "client_rtt"}, {"by": "time"}),
        ("by", {"by": "pool"}, {"by": "pool"}),
        ("by", {"by": "status_class"}, {"by": "status"}),
        ("queue", {}, {}),
    ],
)  # fmt: skip
def test_a_chart_is_asked_for_as_it_is(
    chart: str, given: dict[str, str], wanted: dict[str, str]
) -> None:
    asked = asked_from({"range": "6h", **given}, NOW, latency.CHOICES)
    query = dict(parse_qsl(explore_query(chart, asked, here="latency", staff=False)))
    assert query == ({"range": "6h", **wanted} if wanted else {})
    of_all = dict(parse_qsl(explore_query(chart, asked, here="latency", staff=True)))
    assert of_all == (query | {"organization": "all"} if wanted else {})


@pytest.mark.parametrize("chart", CHARTS)
def test_every_way_leads_to_a_question_that_can_be_read(chart: str) -> None:
    for choices in (latency.CHOICES, cache.by_choices(cache.BY_WORDS_STAFF)):
        asked = asked_from({"range": "6h"}, NOW, choices)
        for staff in (False, True):
            query = explore_query(chart, asked, here="cache", staff=staff)
            assert question_from(dict(parse_qsl(query)), NOW, staff=staff).complaint == ""


@pytest.mark.parametrize(
    ("dimension", "value", "words"),
    [("hour", 23, "23:00 to 00:00"), ("prompt_bucket", 0, "\u2264 256 tokens"), ("label", "{", "{"),
     ("time", NOW, "2026-11-21 09:15:00"), ("region", "", "none"), ("status", 200, "200"),
     ("rating", 1, "thumbs up"), ("rating", -1, "thumbs down"), ("rating", 0, "none")],
)  # fmt: skip
def test_values_are_told_in_words(dimension: str, value: object, words: str) -> None:
    assert value_words(dimension, value) == words


@pytest.mark.parametrize(
    ("query", "value", "wanted"),
    [
        ("by=hour", 23, {"hours": "23-24"}),
        ("by=status", 503, {"status": "503"}),
        ("by=status", 204, {"status": "ok"}),
        ("by=status", 418, None),
        ("by=label", '{"team":"ads"}', None),
        ("by=label&label=team", "ads", {"label": "team=ads"}),
        ("by=end_user", "ann", {"user": "ann"}),
        ("by=region", "", None),
        ("by=prompt_bucket", 2, {"length": "2"}),
        ("by=rating", -1, {"rating": "down"}),
        ("by=rating", 0, None),
    ],
)
def test_a_group_is_narrowed_to_where_a_filter_says_so(
    query: str, value: object, wanted: dict[str, str] | None
) -> None:
    question = question_from(dict(parse_qsl(query)), NOW, staff=False)
    narrowed = narrowed_to(question, (value,))
    if wanted is None:
        assert narrowed is None
    else:
        assert narrowed is not None
        assert wanted.items() <= dict(parse_qsl(narrowed.query)).items()


def test_a_step_of_time_is_a_range_of_its_own() -> None:
    question = question_from({"by": "time", "range": "6h"}, NOW, staff=False)
    at = question.within.steps[3]
    narrowed = narrowed_to(question, (at,))
    assert narrowed is not None
    assert (narrowed.within.start, narrowed.within.end) == (at, at + question.step)
