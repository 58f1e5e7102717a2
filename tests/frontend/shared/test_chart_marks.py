"""Marks on charts over time: numbered once where they are close, and never beyond the edge."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from controlplane.slos.marks import Mark
from frontend.shared.plots.figure import Axis, Figure, Line
from frontend.shared.plots.marks import marked

BEGAN = datetime(2026, 11, 29, tzinfo=UTC)
TIMES = [BEGAN + timedelta(minutes=minute) for minute in range(101)]


def figure(times: list[datetime]) -> dict[str, Any]:
    lines = [Line("n", [1.0] * len(times), "--p50")]
    return Figure("a", "A", "", times, lines, Axis("n")).as_json()


def numbers(*minutes: int) -> list[tuple[str, str]]:
    """What is written, and on which side of its line."""
    marks = [Mark(BEGAN + timedelta(minutes=one), f"<b>{one}</b>") for one in minutes]
    layout = marked(figure(TIMES), marks)["layout"]
    assert len(layout["shapes"]) == len(marks)
    assert "<b>" not in str(layout["annotations"])
    return [(one["text"], one["xanchor"]) for one in layout["annotations"]]


def test_close_marks_share_a_number() -> None:
    assert numbers(10, 11, 12, 20) == [("1–3", "left"), ("4", "left")]
    assert numbers(10, 50, 99, 100) == [("1", "left"), ("2", "left"), ("3–4", "right")]


def test_what_has_no_times_stays_as_it_is() -> None:
    marks = [Mark(BEGAN, "x")]
    assert marked(figure([]), marks) == figure([])
    assert marked(figure(TIMES), []) == figure(TIMES)
