"""The Latency page's arithmetic: a ladder of medians, groups, and a heat map that loses nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

import pytest

from controlplane.kernel.histogram import Histogram
from controlplane.kernel.spans import SPANS, STAGES
from controlplane.telemetry.selectors import Point
from frontend.latency.figures import (
    CHOICES,
    Latency,
    Read,
    layer_measures,
    make_latency,
    wanted_measures,
)
from frontend.latency.heat_plot import HeatMap, cell_links
from frontend.shared.asked import asked_from
from frontend.shared.filters import filters_from, range_from
from frontend.shared.plots.figure import Axis
from frontend.shared.plots.tables import panel_table
from frontend.shared.stages import MEASURE_WORDS, STAGE_NAMES

NOW = datetime(2026, 11, 21, 9, 15, tzinfo=UTC)
START = NOW - timedelta(minutes=15)
BUDGETS = {name: budget for name, _, budget in STAGES}


def _histogram(*values: int) -> Histogram:
    made = Histogram()
    for value in values:
        made.record(value)
    return made


def _made(everyone: dict[str, Histogram], **more: object) -> Latency:
    query = {"range": "15m", **{k: str(v) for k, v in more.items() if k in ("stage", "by")}}
    asked = asked_from(query, NOW, CHOICES)
    groups = more.get("groups") or {}
    assert isinstance(groups, dict)
    read = Read({START: Point(START, everyone=everyone)}, None, groups, groups, BUDGETS)
    return make_latency(read, asked, NOW)


def test_each_rung_begins_where_the_medians_above_it_end() -> None:
    everyone = {
        "s1_admission": _histogram(*[1_000] * 100),
        "s2_balance": _histogram(*[2_000] * 100),
        "total": _histogram(*[10_000] * 100),
    }
    rungs = {rung.name: rung for rung in _made(everyone).rungs}
    assert rungs["s1_admission"].left == 0
    assert rungs["s2_balance"].left == pytest.approx(rungs["s1_admission"].width, rel=0.01)
    assert rungs["s3_tokenize"].left == pytest.approx(30, rel=0.02)
    assert rungs["s2_balance"].width == pytest.approx(20, rel=0.02)
    assert rungs["total"].left == 0 and rungs["total"].slowest == pytest.approx(100)
    assert rungs["s3_tokenize"].count == 0 and rungs["s3_tokenize"].width == 0


def test_a_stage_opens_to_its_layers_and_only_those_are_read() -> None:
    layers = layer_measures("s5_infer")
    assert list(layers) == ["network", "queue", "prefill", "decode"]
    made = _made({"prefill": _histogram(5_000)}, stage="s5_infer")
    names = [rung.name for rung in made.rungs]
    place = names.index("s5_infer")
    assert names[place + 1 : place + 5] == list(layers)
    assert not any(rung.is_stage for rung in made.rungs[place + 1 : place + 5])
    closed = wanted_measures(asked_from({}, NOW, CHOICES))
    opened = wanted_measures(asked_from({"stage": "s3_tokenize"}, NOW, CHOICES))
    of_stage = {span.name for span in SPANS if span.layer and span.stage == "s3_tokenize"}
    assert set(opened) - set(closed) == of_stage


def test_groups_come_with_the_busiest_first_and_their_own_words() -> None:
    groups = {
        "0": {"total": _histogram(1_000), "ttft": _histogram(500)},
        "5": {"total": _histogram(*[9_000] * 3), "ttft": _histogram(*[8_000] * 3)},
    }
    made = _made({}, by="prompt_bucket", groups=groups)
    assert [row[:2] for row in made.groups.rows()] == [["> 64k tokens", "3"], ["≤ 256 tokens", "1"]]
    assert made.groups.rows()[1][2:5] == ["0.991"] * 3
    buckets = next(one for one in made.figures if one.name == "buckets")
    assert buckets.finding.startswith("p95 goes from 0.496 ms for prompts of ≤ 256 tokens to 7.93")
    assert [row[:2] for row in buckets.rows()][1] == ["≤ 1k", "0"]


def test_a_heat_map_counts_every_value_once_between_its_edges() -> None:
    values = [1, 3, 1_000, 1_001, 65_536, 900_000]
    heat = HeatMap("heat", "Total", [START], 60, {START: _histogram(*values)}, Axis("ms", True))
    assert sum(int(row[3]) for row in heat.rows()) == len(values)
    trace = heat.as_json()["data"][0]
    assert len(trace["x"]) == 2 and len(trace["y"]) == len(trace["z"]) + 1
    assert sum(cells[0] or 0 for cells in trace["z"]) == len(values)
    for value in values:
        fits = [row for row in heat.rows() if float(row[1]) < value / 1_000 <= float(row[2])]
        # The first bucket holds everything up to one microsecond.
        assert len(fits) == 1 or value == 1


def test_a_cell_leads_to_its_step_and_to_the_values_between_its_edges() -> None:
    found = {
        START: _histogram(1_001, 900_000),
        START + timedelta(minutes=1): _histogram(90_000_000),
    }
    links = cell_links("total", "tiny")
    heat = HeatMap("heat", "", list(found), 60, found, Axis("ms", True), links=links)
    rows = heat.rows()
    addresses = heat.addresses(len(rows))
    assert len(addresses) == len(rows) == 3 and heat.addresses(2) == addresses[1:]
    opens = heat.as_json()["opens"]
    for address, (_, low, high, _) in zip(addresses, rows, strict=True):
        page, _, query = address.partition("?")
        asked = dict(parse_qsl(query))
        assert page == "/requests" and asked.pop("model") == "tiny"
        # Whole microseconds, of which the table shows six digits.
        for asked_ms, edge in ((asked["min_ms"], low), (asked["max_ms"], high)):
            assert float(asked_ms) == pytest.approx(float(edge), rel=2e-5, abs=0.0011)
        assert filters_from(asked)[1] == "" and range_from(asked, NOW)[1] == ""
        assert sum(query.endswith(part) for _, part in opens["rows"]) == 1
    # What took 90 s and ended in the second minute may have begun in the first or before.
    late = dict(parse_qsl(addresses[-1]))
    within, _ = range_from(late, NOW)
    assert within.start <= START + timedelta(seconds=60 - 90)
    assert within.end == START + timedelta(minutes=2)
    assert opens["times_s"] == [int(at.timestamp()) for at in found] and opens["step_s"] == 60


def test_only_what_requests_are_listed_by_leads_somewhere() -> None:
    for measure in MEASURE_WORDS:
        links = cell_links(measure, "")
        heat = HeatMap("heat", "", [START], 60, {START: _histogram(5_000)}, Axis("ms"), links=links)
        table = panel_table(heat)
        if measure in ("total", "ttft"):
            assert '<a href="/requests?from=' in table and "&amp;" in table
        elif measure in STAGE_NAMES:
            assert f'<a href="/requests/exemplar?measure={measure}&amp;from=' in table
        else:
            assert "<a" not in table and "opens" not in heat.as_json()


def test_nothing_recorded_is_told_by_every_panel() -> None:
    made = _made({})
    assert made.empty
    assert all(figure.empty for figure in made.figures)
    assert {rung.cells[0].text for rung in made.rungs} == {"–"}
    assert made.groups.rows() == []
    assert all(figure.as_json()["data"] for figure in made.figures)


def test_every_panel_has_a_name_of_its_own_and_rows_under_its_head() -> None:
    everyone = {name: _histogram(*range(1, 200)) for name in ("total", "ttft", "tokens_per_s")}
    made = _made(everyone, groups={"tiny": everyone})
    names = [panel.name for panel in made.panels]
    assert len(set(names)) == len(names)
    assert all(len(row) == len(panel.head) for panel in made.panels for row in panel.rows())


def test_percentiles_have_a_colour_each_and_charts_of_nothing_no_place_for_axes() -> None:
    made = _made({name: _histogram(1_000) for name in ("ttft", "tokens_per_s", "inter_token")})
    drawn = {one.name: one.as_json()["data"] for one in made.figures}
    for name in ("buckets", "speed", "inter_token"):
        assert len({trace["line"]["color"] for trace in drawn[name]}) == 3, name
    assert {one.name for one in made.figures if one.empty} >= {"heat", "stages", "phases"}
