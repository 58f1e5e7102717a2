"""The Overview's arithmetic: merged percentiles, sampled queues, verdicts, nothing from nothing."""

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.bridge.record.series import QueueDepth
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import GAUGES
from controlplane.kernel.spans import STAGES
from controlplane.slos.models import StageOwner
from controlplane.telemetry.selectors import Point, UsageSum
from frontend.overview.figures import Beside, Overview, make_overview
from frontend.shared.asked import Asked
from frontend.shared.filters import Segment, TimeRange
from frontend.shared.formats import Cell, percent_from
from frontend.shared.tiles import NOBODY, Waits

START = datetime(2026, 11, 21, 9, tzinfo=UTC)
WITHIN = TimeRange(START, START + timedelta(minutes=15), "15m")
NOW = WITHIN.end


def _histogram(*values: int) -> Histogram:
    made = Histogram()
    for value in values:
        made.record(value)
    return made


def _asked(percent: int = 95) -> Asked:
    return Asked(WITHIN, Segment(), percent, compare=False)


def _beside(waits: Waits = NOBODY, team: str = "edge") -> Beside:
    owners = {}
    for name, _, budget_us in STAGES:
        owners[name] = StageOwner(stage=name, team=team, budget_us=budget_us, runbook="/r")
        # As read from the database: somebody has set it.
        owners[name]._state.adding = False
    return Beside(1_234_567, waits, owners)


def _made(
    *points: Point,
    now: datetime = NOW,
    percent: int = 95,
    before: dict[datetime, Point] | None = None,
) -> Overview:
    by_time = {point.at: point for point in points}
    return make_overview(by_time, _asked(percent), now, beside=_beside(), before=before)


def _cells(made: Overview) -> dict[str, Cell]:
    shown = [cell for tile in made.tiles for cell in tile.shown]
    shown += [c for row in made.stages for c in (*row.cells, row.before, row.count, row.verdict)]
    return {cell.key: cell for cell in shown}


def test_percentiles_are_of_merged_histograms_and_not_of_averages() -> None:
    # 99 fast and 1 slow, then 1 slow: an average of the two p95 would tell a third, wrong story.
    first = Point(START, own={"ttft": _histogram(*[1_000] * 99, 900_000)})
    second = Point(START + timedelta(minutes=1), own={"ttft": _histogram(900_000)})
    cells = _cells(_made(first, second))
    assert cells["ttft.p95"].text == _cells(_made(first))["ttft.p95"].text
    assert cells["ttft.n"].text == "n = 101"


def test_percentiles_of_few_values_are_faint() -> None:
    cells = _cells(_made(Point(START, own={"ttft": _histogram(*[1_000] * 50)})))
    assert [cells[f"ttft.p{p}"].tone for p in (50, 95, 99)] == ["", "", "few"]


def _waiting(gateway: list[int], nodes: list[int]) -> dict[str, Histogram]:
    """Everyone in gateways is of normal priority and has waited for 250 ms."""
    depths = [
        QueueDepth("", inside, there, (0, inside, 0), 250 * bool(inside))
        for inside, there in zip(gateway, nodes, strict=True)
    ]
    columns = zip(*(depth.values for depth in depths), strict=True)
    return dict(zip(GAUGES, (_histogram(*each) for each in columns), strict=True))


def test_queue_depth_is_sampled_and_averaged_over_the_step() -> None:
    # Two gateways' samples of one minute, merged: one saw three wait all the time, one a burst.
    first = Point(START, everyone=_waiting([2] * 60 + [0] * 60, [1] * 60 + [30] + [0] * 59))
    made = _made(first)
    cells = _cells(made)
    assert cells["depth"].text == "3.50"
    assert cells["depth.most"].text == "30"
    figure = next(one for one in made.figures if one.name == "queue")
    assert [line.values[0] for line in figure.lines] == [2.0, 1.5, 30]
    assert figure.finding.startswith("Up to 30 waited at one gateway")
    urgent = next(one for one in made.figures if one.name == "priorities")
    assert [line.values[0] for line in urgent.lines] == [0.0, 2.0, 0.0]
    assert urgent.finding == "Of normal priority; all tenants. Higher ones go first."
    oldest = next(one for one in made.figures if one.name == "oldest")
    assert oldest.lines[0].values[0] == 0.25
    assert oldest.finding == "The first in a queue had waited up to 250 ms."
    # The present minute is ten seconds old.
    young = Point(START + timedelta(minutes=14), everyone=_waiting([0] * 10, [1] * 5 + [0] * 5))
    cells = _cells(_made(young, now=young.at + timedelta(seconds=10)))
    assert cells["depth"].text == "0.500"


def test_a_queue_that_was_not_sampled_is_no_empty_queue() -> None:
    figure = next(one for one in _made(Point(START)).figures if one.name == "queue")
    assert figure.empty
    assert figure.finding == "No samples in this range."
    idle = _made(Point(START, everyone=_waiting([0] * 60, [0] * 60)))
    assert _cells(idle)["depth"].text == "0"
    figure = next(one for one in idle.figures if one.name == "queue")
    assert figure.finding == "No request waited in any sample."


def test_what_was_sampled_before_priorities_were_is_a_gap_in_their_charts() -> None:
    old = {
        name: found for name, found in _waiting([2] * 60, [0] * 60).items() if name in GAUGES[:3]
    }
    figures = {one.name: one for one in _made(Point(START, everyone=old)).figures}
    assert figures["queue"].lines[0].values[0] == 2.0
    assert figures["priorities"].empty and figures["oldest"].empty


def test_own_requests_that_wait_now_are_told() -> None:
    assert "none of yours" in _cells(_made())["depth.what"].text
    waits = Waits(1_200, 2.5)
    made = make_overview({}, _asked(), NOW, beside=_beside(waits))
    assert _cells(made)["depth.what"].text.endswith("1,200 of yours now, up to 2.50 s")


def test_drafts_are_added_up_over_steps_and_told_as_a_share_and_a_count() -> None:
    first = Point(START, everyone={"drafted": _histogram(600, 1_000), "accepted": _histogram(0)})
    later = START + timedelta(minutes=1)
    second = Point(later, everyone={"drafted": _histogram(400), "accepted": _histogram(500, 250)})
    cells = _cells(_made(first, second))
    assert cells["drafts"].text == "37.5 %"
    assert cells["drafts.tokens"].text == "750 of 2.00 k speculative tokens, all tenants"


def test_without_drafts_there_is_no_rate_of_them() -> None:
    cells = _cells(_made(Point(START, usage=UsageSum(requests=1))))
    assert (cells["drafts"].text, cells["drafts.tokens"].text) == ("–", "no speculative tokens")


@pytest.mark.parametrize(("took_us", "words"), [(4_000, "within budget"), (6_000, "over budget")])
def test_a_stage_is_held_against_its_budget(took_us: int, words: str) -> None:
    made = _made(Point(START, everyone={"s1_admission": _histogram(*[took_us] * 30)}))
    assert _cells(made)["s1_admission.verdict"].text == words
    assert made.stages[0].over == (words == "over budget")


def test_too_few_values_are_not_judged() -> None:
    made = _made(Point(START, everyone={"s1_admission": _histogram(*[6_000] * 19)}))
    cells = _cells(made)
    assert cells["s1_admission.p95"].tone == "few"
    assert cells["s1_admission.verdict"].text == "–"
    assert not made.stages[0].over


def test_counts_rates_and_money_of_a_range() -> None:
    usage = UsageSum(
        requests=900, errors=9, gone=45, uncached=300, cached=700, output=9_000,
        available=900, captured=800,
    )  # fmt: skip
    cells = _cells(_made(Point(START, usage=usage)))
    assert cells["requests"].title == "900"
    assert cells["requests.rate"].text == "1.00 a second"
    assert cells["errors"].text == "1.00 %"
    assert cells["gone"].text == "5.00 %"
    assert cells["gone.count"].text.startswith("45 ")
    assert (cells["tokens"].text, cells["tokens.in"].text) == ("10.0", "1.11")
    reuse = [cells[key].text for key in ("cache.available", "cache.captured", "cache")]
    assert reuse == ["90.0 %", "80.0 %", "70.0 %"]
    assert (cells["spend"].text, cells["spend"].title) == ("$0.00123", "$0.001234567")


def test_nothing_recorded_is_missing_and_not_zero() -> None:
    made = _made()
    cells = _cells(made)
    assert made.empty
    assert {cells[key].text for key in ("ttft.p50", "errors", "cache", "depth")} == {"–"}
    assert cells["s5_infer.verdict"].text == "–"
    assert all(figure.empty for figure in made.figures)


def test_the_live_stream_names_every_cell_of_the_page() -> None:
    made = _made(Point(START, own={"ttft": _histogram(1)}))
    assert set(made.live()["cells"]) == set(_cells(made))
    assert set(made.live()["figures"]) == {
        "traffic", "total", "stages", "ttft", "overhead", "throughput", "queue", "priorities",
        "oldest", "cache",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "percent", "complains"), [("50", 50, False), ("99", 99, False), ("98", 95, True)]
)
def test_the_percentile_over_time_is_in_the_url(text: str, percent: int, complains: bool) -> None:
    found, complaint = percent_from({"percentile": text})
    assert (found, bool(complaint)) == (percent, complains)
    titles = {one.name: one.title for one in _made(percent=percent).figures}
    assert titles["stages"] == f"Stages over time, p{percent}"


def test_the_period_before_is_told_beside_each_figure_as_a_rate_and_a_change() -> None:
    slow, fast = ({"ttft": _histogram(*[us] * 40)} for us in (200_000, 100_000))
    usage = {"errors": 10, "uncached": 50, "cached": 50}
    now = Point(START, own=slow, usage=UsageSum(requests=1_800, **usage))
    then = Point(START, own=fast, usage=UsageSum(requests=900, **usage))
    cells = _cells(_made(now, before={START: then}))
    assert cells["requests.before"].text == "before: 900 (+100 %)"
    assert cells["errors.before"].text == "before: 1.11 % (-50 %)"
    assert cells["ttft.p50.before"].text.startswith("before: p50 100 ms · p95 100 ms")
    assert cells["ttft.p50.before"].text.endswith("(+100 %)")
    assert cells["inter_token.p50.before"].text == "previous period: no data"
    lines = {line.name for one in _made(now, before={START: then}).figures for line in one.lines}
    assert {"requests of the previous period", "p95 of the previous period"} <= lines


def test_time_in_no_stage_is_a_row_of_its_own_without_a_budget() -> None:
    made = _made(Point(START, everyone={"unattributed": _histogram(*[350] * 30)}))
    assert made.stages[-1].label == "Other"
    assert _cells(made)["unattributed.p95"].text == "0.350"
    assert _cells(made)["unattributed.verdict"].text == "–"


def test_tokens_a_second_are_of_the_time_that_a_step_has_lasted() -> None:
    usage = UsageSum(requests=1, uncached=600, cached=60, output=120)
    young = Point(START + timedelta(minutes=14), usage=usage)
    within = TimeRange(START, START + timedelta(minutes=14, seconds=10), "15m")
    asked = Asked(within, Segment(), 95, compare=False)
    made = make_overview({young.at: young}, asked, within.end, beside=_beside())
    figure = next(one for one in made.figures if one.name == "throughput")
    assert [line.values[-1] for line in figure.lines] == [60, 6, 12]
    assert figure.finding.startswith("5.00 prompt tokens were computed per output token")


def test_every_panel_has_rows_to_take_away() -> None:
    made = _made(Point(START, own={"ttft": _histogram(*[5_000] * 30)}))
    panels = {panel.name: panel for panel in made.panels}
    assert {"tiles", "stage-table", *(one.name for one in made.figures)} == set(panels)
    assert ["Time to first token", "p50", "5.00 ms", "of 30 values"] in panels["tiles"].rows()
    assert len(panels["stage-table"].rows()) == 8
    assert all(len(row) == len(p.head) for p in made.panels for row in p.rows())
