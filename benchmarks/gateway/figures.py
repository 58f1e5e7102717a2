"""What passes tell: medians, and ratios of a side to the control that took turns with it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.gateway import two
from benchmarks.gateway.groups import FEATURE
from benchmarks.recorder import SPREAD, Recorder, spread
from benchmarks.stack import AUTH_ONLY, WITH_HOLD, WITH_LIMITS

Passes = Mapping[str, Sequence[Any]]


class Ratio(NamedTuple):
    """A row that is told: a side to its control, in one of the groups.

    It is guarded unless what it costs is not up to the gateway alone.
    """

    name: str
    side: str
    control: str
    group: str
    figure: str = "cpu_ms"
    guarded: bool = True


SHAPES = (
    Ratio("chat", "chat", "control", "whole"),
    Ratio("chat_streamed", "streams", "control beside streams", "streams"),
    Ratio("completions", "completions", "control", "whole"),
    Ratio("responses", "responses", "control", "whole"),
    Ratio("messages", "messages", "control", "whole"),
    # Its node is slower than the gateway: how fast that is decides how many requests share a turn.
    Ratio("embeddings", "embeddings", "control beside embeddings", "embeddings", guarded=False),
)
FEATURES = (
    *(
        Ratio(name, FEATURE.format(name), "control", "whole")
        for name in (AUTH_ONLY, WITH_LIMITS, WITH_HOLD)
    ),
    Ratio("all", "chat", "control", "whole"),
)
PACED = Ratio("paced_token", "paced", "paced control", "paced", "us")
# `all` is `chat` once more.
COMPARED = (*SHAPES, *FEATURES[:-1], PACED)
GUARDED = tuple(row for row in COMPARED if row.guarded)


def pass_ratios(passes: Passes, row: Ratio) -> list[float]:
    """Pass by pass; empty where this was not measured."""
    pairs = zip(passes.get(row.side, ()), passes.get(row.control, ()), strict=True)
    return [one[row.figure] / other[row.figure] for one, other in pairs]


def guarded_ratios(
    passes: Passes, of: Callable[[list[float]], float] = statistics.median
) -> dict[str, float]:
    """Of each guarded row that was measured, one figure of its passes."""
    found = {row.name: pass_ratios(passes, row) for row in GUARDED if row.side in passes}
    return {name: of(ratios) for name, ratios in found.items() if ratios}


def figures(recorder: Recorder) -> dict[str, Any]:
    """What the last line holds, but for stages and features seen."""
    passes = recorder.passes

    def of(key: str, side: str, figure: str) -> dict[str, Any]:
        return spread(key, [row[figure] for row in passes[side]], 4)

    def row_of(row: Ratio) -> dict[str, Any]:
        return of("cpu_ms", row.side, "cpu_ms") | ratio("ratio", row)

    def ratio(key: str, row: Ratio) -> dict[str, Any]:
        return spread(key, pass_ratios(passes, row), 2)

    gaps = zip(passes["paced"], passes["paced control"], strict=True)
    added_ms = [one["gap_p99_ms"] - other["gap_p99_ms"] for one, other in gaps]
    beside = Ratio("", "streams", "whole beside streams", "streams")
    return {
        **of("cpu_ms_per_request", "chat", "cpu_ms"),
        **of("control_cpu_ms_per_request", "control", "cpu_ms"),
        **ratio("ratio_to_control", SHAPES[0]),
        **of("requests_per_s", "chat", "per_s"),
        **of("cpu_us_per_paced_token", "paced", "us"),
        **of("control_cpu_us_per_paced_token", "paced control", "us"),
        **ratio("ratio_to_control_paced", PACED),
        **ratio("paced_responses_x_chat", Ratio("", "paced responses", "paced", "paced", "us")),
        **ratio("paced_messages_x_chat", Ratio("", "paced messages", "paced", "paced", "us")),
        **spread("added_itl_p99_ms", added_ms),
        **of("itl_p99_ms", "paced", "gap_p99_ms"),
        **of("control_itl_p99_ms", "paced control", "gap_p99_ms"),
        **of("cpu_us_per_lone_paced_token", "lone", "us"),
        **of("control_cpu_us_per_lone_paced_token", "lone control", "us"),
        **of("streams_per_s", "streams", "per_s"),
        **ratio("stream_cpu_x_whole", beside),
        **of("added_p50_ms_c1", "one client", "p50_ms"),
        **of("control_p50_ms_c1", "one client of the control", "p50_ms"),
        **of("added_ttft_ms", "one stream", "ttft_ms"),
        "rss_mib_idle": round(passes["idle"][0]["rss_mib"], 1),
        "shapes": {row.name: row_of(row) for row in SHAPES},
        "features": {row.name: row_of(row) for row in FEATURES},
        "two_gateways": two.figures(recorder),
    }


def stages(counts: Mapping[str, int], cpu_ms: float) -> dict[str, float]:
    """CPU microseconds per request by part, from the sampler's shares."""
    total = sum(counts.values())
    rows = sorted(counts.items(), key=lambda row: -row[1])
    return {part: round(count / total * cpu_ms * 1000, 1) for part, count in rows}


def show(found: Mapping[str, Any]) -> None:
    """The same for people, with the least and the most of the passes."""
    print(f"{'':42}{'median':>12}{'least':>12}{'most':>12}")
    for key in [key for key in found if key + SPREAD in found]:
        _line(key, found, key)
    for title in ("shapes", "features"):
        print(f"\n{title}: CPU ms per request, and its ratio to the control's")
        for name, row in found[title].items():
            _line(f"  {name}, CPU ms", row, "cpu_ms")
            _line(f"  {name}, ratio", row, "ratio")
    print(f"\n{two.MEANING}")
    for side in two.KEYS.values():
        for key in ("per_s", "cpu_ms", "p99_ms"):
            _line(f"  {side}, {key}", found["two_gateways"][side], key)
    print(f"\n{found['core_share_of_others']:.1%} of the servers' core was taken by others")
    print(f"errors {found['errors']}; features seen at work: {', '.join(found['features_on'])}")
    print("\nCPU us per request by part (sampled while answering whole, in passes of their own):")
    for part, us in found["stages_us"].items():
        print(f"  {part:20}{us:10.1f}")


def _line(title: str, row: Mapping[str, Any], key: str) -> None:
    least, most = row[key + SPREAD]
    print(f"{title:42}{row[key]:12.3f}{least:12.3f}{most:12.3f}")
