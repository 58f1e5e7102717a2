"""`make bench-gateway`: what the gateway costs with every feature on, against an echo node.

For CPU and throughput the gateway has one core to itself; PostgreSQL, Redis, the node and the load
share the other. For latency at one client nothing is pinned. CPU is user and system time of the
server's process. The control is bare uvicorn, which runs beside the gateway: both are measured in
turns, in short passes, so that a host that drifts changes both. Figures are medians of passes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.utils.module_loading import import_string

from benchmarks import load
from benchmarks.control import PACED_PATH
from benchmarks.load import Tally, closed_loop, percentile, request_bytes
from benchmarks.machine import cpu_s, describe, pin, rss_mib
from benchmarks.recorder import SPREAD, Recorder, spread
from benchmarks.serve import CONTROL_APP
from benchmarks.stack import OTHER_CORE, Stack, node, serve, stack

GATEWAY_APP = "controlplane.asgi:application"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
PROMPT = "Which hotel has a pool and costs less than 100 dollars a night?"
SECONDS = 2.5
WARM_S = 1.0
PASSES = 4
CLIENTS = 16
STREAM_TOKENS = 20
PACED_TOKENS = 400
PACED_PER_S = 200
UNMEASURED = {
    "embeddings": "the echo engine embeds nothing",
    "responses": "no such route",
    "messages": "no such route",
}


def body(*, tokens: int, stream: bool) -> dict[str, object]:
    """A chat with a question of about 20 tokens."""
    messages = [{"role": "user", "content": PROMPT}]
    return {"model": "sluice-5m", "messages": messages, "max_tokens": tokens, "stream": stream}


@dataclass(frozen=True)
class Server:
    """One that is measured."""

    port: int
    pid: int


def one_pass(server: Server, work: load.Work, *, clients: int) -> tuple[Tally, float]:
    """The tally and the server's CPU seconds in it."""
    before = cpu_s(server.pid)
    tally = asyncio.run(closed_loop(server.port, work, clients=clients, seconds=SECONDS))
    return tally, cpu_s(server.pid) - before


def warm(server: Server, work: load.Work, *, clients: int) -> None:
    """Before the first pass."""
    asyncio.run(closed_loop(server.port, work, clients=clients, seconds=WARM_S))


Figure = Callable[[Tally, float], dict[str, float]]
Side = tuple[str, Server, load.Work]


def in_turns(recorder: Recorder, sides: list[Side], figure: Figure, *, clients: int) -> int:
    """Every side in every pass, the first of them last the next time; returns the errors."""
    errors = 0
    for _, server, work in sides:
        warm(server, work, clients=clients)
    for number in range(PASSES):
        for name, server, work in sides[number % len(sides) :] + sides[: number % len(sides)]:
            tally, used_s = one_pass(server, work, clients=clients)
            recorder.keep(name, figure(tally, used_s))
            errors += tally.errors
    return errors


def cost(tally: Tally, used_s: float) -> dict[str, float]:
    """CPU milliseconds for each answer, and answers in a second."""
    answers = max(1, tally.answers)
    return {"cpu_ms": used_s * 1e3 / answers, "per_s": tally.answers / SECONDS}


def latency(tally: Tally, used_s: float) -> dict[str, float]:
    """Milliseconds to the end, and to the first token of a stream."""
    return {
        "p50_ms": percentile(tally.total_s, 0.5) * 1e3,
        "ttft_ms": percentile(tally.first_s, 0.5) * 1e3,
    }


def token_cost(tally: Tally, used_s: float) -> dict[str, float]:
    """CPU microseconds for each token."""
    return {"us": used_s * 1e6 / max(1, tally.tokens)}


def whole(key: str, path: str = CHAT) -> load.Work:
    """Requests whose answer comes in one body."""
    asked = body(tokens=STREAM_TOKENS, stream=False)
    if path == COMPLETIONS:
        asked["prompt"] = PROMPT
        del asked["messages"]
    request = request_bytes(path, key, asked)
    return lambda connection, tally: connection.whole(request, tally)


def streamed(key: str, tokens: int) -> load.Work:
    """Requests whose answer streams."""
    request = request_bytes(CHAT, key, body(tokens=tokens, stream=True))
    return lambda connection, tally: connection.stream(request, tally)


def paced_events() -> load.Work:
    """The control's stream of fixed events."""
    request = request_bytes(PACED_PATH, "none", body(tokens=PACED_TOKENS, stream=True))
    return lambda connection, tally: connection.stream(request, tally)


@contextlib.contextmanager
def pair(
    made: Stack, *engine: str, samples: Path | None = None, pinned: bool = True
) -> Iterator[tuple[Server, Server]]:
    """Gateway with a node, and control, both running."""
    with (
        serve(CONTROL_APP, pinned=pinned) as (control_port, control_pid),
        serve(GATEWAY_APP, samples=samples, pinned=pinned) as (port, pid),
        node(made, port, "--engine", "echo", *engine),
    ):
        yield Server(port, pid), Server(control_port, control_pid)


def unpaced(made: Stack, recorder: Recorder, samples: Path) -> int:
    """Whole answers and twenty-token streams, as fast as they come."""
    with pair(made, samples=samples) as (gateway, control):
        recorder.keep("idle", {"rss_mib": rss_mib(gateway.pid)})
        sides = [("chat", gateway, whole(made.key)), ("control", control, whole("none"))]
        errors = in_turns(recorder, sides, cost, clients=CLIENTS)
    with pair(made) as (gateway, control):
        sides = [
            ("completions", gateway, whole(made.key, COMPLETIONS)),
            ("control beside completions", control, whole("none")),
        ]
        errors += in_turns(recorder, sides, cost, clients=CLIENTS)
    with pair(made, pinned=False) as (gateway, control):
        # For latency nothing is pinned: what waits for another process waits for no core.
        pin(0)
        sides = [
            ("one client", gateway, whole(made.key)),
            ("one client of the control", control, whole("none")),
            ("one stream", gateway, streamed(made.key, STREAM_TOKENS)),
        ]
        errors += in_turns(recorder, sides, latency, clients=1)
        pin(0, OTHER_CORE)
    with pair(made, "--tokens-per-step", "1") as (gateway, control):
        sides = [
            ("streams", gateway, streamed(made.key, STREAM_TOKENS)),
            ("whole beside streams", gateway, whole(made.key)),
        ]
        errors += in_turns(recorder, sides, cost, clients=CLIENTS)
    return errors


def paced(made: Stack, recorder: Recorder) -> int:
    """Tokens 5 ms apart: in sixteen streams, which share a node's steps, and in a lone one, where
    each token wakes the gateway from idle and cold.
    """
    errors = 0
    with pair(made, "--tokens-per-s", str(PACED_PER_S)) as (gateway, control):
        for name, clients in (("paced", CLIENTS), ("lone", 1)):
            sides = [
                (name, gateway, streamed(made.key, PACED_TOKENS)),
                (f"{name} control", control, paced_events()),
            ]
            errors += in_turns(recorder, sides, token_cost, clients=clients)
    return errors


def stages(samples: Path, cpu_ms: float) -> dict[str, float]:
    """CPU microseconds per request by part, from the sampler's shares."""
    counts = json.loads(samples.read_text())
    total = sum(counts.values())
    rows = sorted(counts.items(), key=lambda row: -row[1])
    return {part: round(count / total * cpu_ms * 1000, 1) for part, count in rows}


def ratios(recorder: Recorder, key: str, of: str, to: str, figure: str) -> dict[str, Any]:
    """Of one side to another, pass by pass."""
    pairs = zip(recorder.passes[of], recorder.passes[to], strict=True)
    return spread(key, [one[figure] / other[figure] for one, other in pairs], 2)


def figures(recorder: Recorder) -> dict[str, Any]:
    """What the last line holds, but for stages and features."""
    passes = recorder.passes

    def of(key: str, side: str, figure: str) -> dict[str, Any]:
        return spread(key, [row[figure] for row in passes[side]], 4)

    shapes: dict[str, Any] = {}
    for shape, beside in (("chat", "control"), ("completions", "control beside completions")):
        shapes[shape] = of("cpu_ms", shape, "cpu_ms")
        shapes[shape] |= ratios(recorder, "ratio", shape, beside, "cpu_ms")
    for shape, why in UNMEASURED.items():
        shapes[shape] = {"cpu_ms": None, "ratio": None, "why_cpu_ms": why, "why_ratio": why}
    return {
        **of("cpu_ms_per_request", "chat", "cpu_ms"),
        **of("control_cpu_ms_per_request", "control", "cpu_ms"),
        **ratios(recorder, "ratio_to_control", "chat", "control", "cpu_ms"),
        **of("requests_per_s", "chat", "per_s"),
        **of("cpu_us_per_paced_token", "paced", "us"),
        **of("control_cpu_us_per_paced_token", "paced control", "us"),
        **ratios(recorder, "ratio_to_control_paced", "paced", "paced control", "us"),
        **of("cpu_us_per_lone_paced_token", "lone", "us"),
        **of("control_cpu_us_per_lone_paced_token", "lone control", "us"),
        **of("streams_per_s", "streams", "per_s"),
        **ratios(recorder, "stream_cpu_x_whole", "streams", "whole beside streams", "cpu_ms"),
        **of("added_p50_ms_c1", "one client", "p50_ms"),
        **of("control_p50_ms_c1", "one client of the control", "p50_ms"),
        **of("added_ttft_ms", "one stream", "ttft_ms"),
        "rss_mib_idle": round(passes["idle"][0]["rss_mib"], 1),
        "shapes": shapes,
    }


def run(made: Stack, recorder: Recorder) -> dict[str, Any]:
    """All runs, then the figures."""
    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder) / "samples.json"
        errors = unpaced(made, recorder, samples)
        errors += paced(made, recorder)
        found = figures(recorder)
        parts = stages(samples, found["cpu_ms_per_request"])
    # Imported late, since it needs the applications that `stack` sets up.
    features = import_string("benchmarks.limits.features_seen")()
    return {**found, "features_on": features, "stages_us": parts, "errors": errors}


def show(found: dict[str, Any]) -> None:
    """The same for people, with the least and the most of the passes."""
    print(f"{'':42}{'median':>12}{'least':>12}{'most':>12}")
    for key, value in found.items():
        if key + SPREAD in found:
            least, most = found[key + SPREAD]
            print(f"{key:42}{value:12.3f}{least:12.3f}{most:12.3f}")
    for shape, row in found["shapes"].items():
        print(f"{shape:42}{row['cpu_ms'] or row['why_cpu_ms']!s:>12}")
    print(f"errors {found['errors']}; features seen at work: {', '.join(found['features_on'])}")
    print("\nCPU us per request by part (sampled while answering whole):")
    for part, us in found["stages_us"].items():
        print(f"  {part:20}{us:10.1f}")


def main() -> int:
    """Print the table and, last, the JSON line; 1 when a request failed."""
    pin(0, OTHER_CORE)
    print(f"bench-gateway: {describe()}")
    recorder = Recorder("gateway", seconds=SECONDS, passes=PASSES, clients=CLIENTS)
    with stack() as made:
        found = run(made, recorder)
    show(found)
    recorder.finish(found)
    return 1 if found["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
