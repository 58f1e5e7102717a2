"""Charts as data: nothing is sent to a vendor, gaps stay gaps, table and chart agree."""

from datetime import UTC, datetime, timedelta

from frontend.plots.axes import Axis
from frontend.plots.config import plot_config
from frontend.plots.figure import Figure, Line

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
