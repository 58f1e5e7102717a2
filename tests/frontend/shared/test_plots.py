"""Charts as data: nothing is sent to a vendor, gaps stay gaps, table and chart agree."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.http import Http404

from frontend.shared.panels import TablePanel, panel_csv
from frontend.shared.plots.figure import Axis, Figure, Line, plot_config, value_axis
from frontend.shared.plots.groups import GroupFigure
from frontend.shared.plots.tables import ROWS_MAX, panel_table

START = datetime(2026, 11, 21, tzinfo=UTC)
TIMES = [START + timedelta(minutes=minute) for minute in range(3)]
FIGURE = Figure(
    "ttft",
    "Time to first token",
    "The worst p99 was 3 ms.",
    TIMES,
    [Line("p50", [1.5, None, 2.5], "--stage-5"), Line("p99", [3.0, None, None], "--stage-5")],
    Axis("ms", logarithmic=True),
)


def test_no_chart_can_be_sent_to_a_vendor() -> None:
    config = plot_config()
    assert config["showSendToCloud"] is False
    assert config["plotlyServerURL"] == ""
    assert config["displaylogo"] is False
    assert config["displayModeBar"] is False
    assert FIGURE.as_json()["config"] == config


def test_one_charts_configuration_is_not_anothers() -> None:
    plot_config()["plotlyServerURL"] = "https://example.org"
    assert plot_config()["plotlyServerURL"] == ""


def test_a_gap_is_neither_zero_nor_a_row() -> None:
    assert FIGURE.as_json()["data"][0]["y"] == [1.5, None, 2.5]
    assert FIGURE.rows() == [
        ["2026-11-21 00:00:00", "1.5", "3"],
        ["2026-11-21 00:02:00", "2.5", ""],
    ]


def test_the_axis_and_every_column_carry_the_unit() -> None:
    assert FIGURE.as_json()["layout"]["yaxis"]["title"]["text"] == "ms"
    assert FIGURE.head == ["Time, UTC", "p50, ms", "p99, ms"]


def test_a_chart_without_values_is_empty() -> None:
    assert not FIGURE.empty
    assert Figure("x", "x", "", TIMES, [Line("x", [None] * 3, "--link")], Axis("ms")).empty


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([3.56, 4.42], ["3", "4", "5"]),
        ([30, 120], ["20", "50", "100", "200"]),
        ([0.01, 1_940], ["0.01", "0.1", "1", "10", "100", "1,000", "10,000"]),
        ([7, 0, None], ["7"]),
    ],
)
def test_a_logarithmic_axis_has_labels_around_its_values(
    values: list[float | None], shown: list[str]
) -> None:
    made = value_axis(Axis("ms", logarithmic=True), values)
    assert made["ticktext"] == shown
    low, high = made["range"]
    known = [value for value in values if value]
    assert 10**low <= min(known) and max(known) <= 10**high


def test_a_table_holds_the_figures_escaped_and_says_when_it_holds_not_all() -> None:
    odd = GroupFigure("x", "x", "", ["<b>"], [1], [Line("p50", [2], "--link")], Axis("ms"), "Name")
    assert '<th scope="row">&lt;b&gt;</th><td class="number">1</td>' in panel_table(odd)
    times = [START + timedelta(minutes=minute) for minute in range(ROWS_MAX + 1)]
    long = replace(FIGURE, times=times, lines=[Line("p50", [1.0] * len(times), "--link")])
    assert panel_table(long).count("<tr>") == ROWS_MAX + 1
    assert f"The newest {ROWS_MAX} of {ROWS_MAX + 1} rows" in panel_table(long)


def test_csv_of_a_panel_runs_no_formula_and_keeps_negative_numbers() -> None:
    panel = TablePanel("by", "By key", ["Key", "Change"], [["=1+1", "-5"], ["a,b", "–"]])
    answer = panel_csv([panel], "by")
    assert answer.content.decode().splitlines() == ["Key,Change", "'=1+1,-5", '"a,b",–']
    with pytest.raises(Http404):
        panel_csv([panel], "none-such")
