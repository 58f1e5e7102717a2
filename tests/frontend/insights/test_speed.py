"""Speeds of a comparison's ways beside the first, in the words that people use."""

from __future__ import annotations

import pytest

from controlplane.insights.compare import WayResult
from frontend.insights.comparison_views import ShownWay


def _way(took_us: int) -> WayResult:
    return WayResult(
        name="way", label="Way", what="", model="tiny", requests=1, failed=0, seconds=1.0,
        latency_p50_us=took_us, latency_p95_us=took_us, ttft_p50_us=took_us, ttft_p95_us=took_us,
        prompt_tokens=1, cached_tokens=0, output_tokens=10, charged_nano=0, card_nano=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("took_us", "words"),
    [(1_163, "14 % slower"), (800, "25 % faster"), (1_001, "as fast"), (400, "2.5× as fast")],
)
def test_a_way_is_faster_or_slower_than_the_first(took_us: int, words: str) -> None:
    shown = ShownWay(_way(took_us), _way(1_000))
    assert (shown.faster, shown.sooner) == (words, f"{words} to first token")
