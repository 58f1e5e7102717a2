"""`make bench-gateway`: what the gateway costs with every feature on, against an echo node.

For CPU and throughput the gateway has one core to itself; PostgreSQL, Redis, the node and the load
share the other. For latency at one client nothing is pinned. CPU is user and system time of the
gateway's process. The control is bare uvicorn in the same run.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import load
from benchmarks.control import PACED_PATH
from benchmarks.load import Tally, closed_loop, percentile, request_bytes
from benchmarks.machine import cpu_s, describe, pin, rss_mib
from benchmarks.stack import OTHER_CORE, Stack, node, serve, stack

CONTROL_APP = "benchmarks.control:application"
GATEWAY_APP = "controlplane.asgi:application"
CHAT = "/v1/chat/completions"
PROMPT = "Which hotel has a pool and costs less than 100 dollars a night?"
SECONDS = 8.0
WARM_S = 2.0
CLIENTS = 16
STREAM_TOKENS = 20
PACED_TOKENS = 400
PACED_PER_S = 200
FEATURES = [
    "authentication",
    "rate limits",
    "hold and settle, fsync on",
    "request rows and histograms",
    "exact prefix index",
    "tokenizer and chat template",
]


def body(*, tokens: int, stream: bool) -> dict[str, object]:
    """A chat with a question of about 20 tokens."""
    messages = [{"role": "user", "content": PROMPT}]
    return {"model": "sluice-5m", "messages": messages, "max_tokens": tokens, "stream": stream}


def measure(port: int, pid: int, work: load.Work, *, clients: int) -> tuple[Tally, float]:
    """One warm run; the tally and the server's CPU seconds in it."""
    asyncio.run(closed_loop(port, work, clients=clients, seconds=WARM_S))
    before = cpu_s(pid)
    tally = asyncio.run(closed_loop(port, work, clients=clients, seconds=SECONDS))
    return tally, cpu_s(pid) - before


def per_answer_ms(tally: Tally, used_s: float) -> float:
    """CPU milliseconds per answered request."""
    return used_s * 1000 / max(1, tally.answers)


def whole(key: str) -> load.Work:
    """Requests whose answer comes in one body."""
    request = request_bytes(CHAT, key, body(tokens=STREAM_TOKENS, stream=False))
    return lambda connection, tally: connection.whole(request, tally)


def streamed(key: str, tokens: int) -> load.Work:
    """Requests whose answer streams."""
    request = request_bytes(CHAT, key, body(tokens=tokens, stream=True))
    return lambda connection, tally: connection.stream(request, tally)


def control() -> dict[str, float]:
    """Bare uvicorn."""
    with serve(CONTROL_APP) as (port, pid):
        tally, used_s = measure(port, pid, whole("none"), clients=CLIENTS)
        events = request_bytes(PACED_PATH, "none", body(tokens=PACED_TOKENS, stream=True))
        lone, lone_s = measure(port, pid, lambda c, t: c.stream(events, t), clients=1)
        many, many_s = measure(port, pid, lambda c, t: c.stream(events, t), clients=CLIENTS)
    with serve(CONTROL_APP, pinned=False) as (port, pid):
        single, _ = measure(port, pid, whole("none"), clients=1)
    return {
        "cpu_ms": per_answer_ms(tally, used_s),
        "p50_ms": percentile(single.total_s, 0.5) * 1e3,
        "lone_us": lone_s * 1e6 / max(1, lone.tokens),
        "paced_us": many_s * 1e6 / max(1, many.tokens),
    }


def unpaced(made: Stack, samples: Path) -> dict[str, Any]:
    """Whole answers and twenty-token streams, as fast as they come."""
    with (
        serve(GATEWAY_APP, samples=samples) as (port, pid),
        node(made, port, "--engine", "echo"),
    ):
        idle_mib = rss_mib(pid)
        answers, answers_s = measure(port, pid, whole(made.key), clients=CLIENTS)
    with (
        # For latency nothing is pinned: what waits for another process waits for no core.
        serve(GATEWAY_APP, pinned=False) as (port, pid),
        node(made, port, "--engine", "echo"),
    ):
        pin(0)
        single, _ = measure(port, pid, whole(made.key), clients=1)
        first, _ = measure(port, pid, streamed(made.key, STREAM_TOKENS), clients=1)
        pin(0, OTHER_CORE)
    with (
        serve(GATEWAY_APP) as (port, pid),
        node(made, port, "--engine", "echo", "--tokens-per-step", "1"),
    ):
        streams, streams_s = measure(port, pid, streamed(made.key, STREAM_TOKENS), clients=CLIENTS)
    return {
        "cpu_ms": per_answer_ms(answers, answers_s),
        "requests_per_s": answers.answers / SECONDS,
        "p50_ms_c1": percentile(single.total_s, 0.5) * 1e3,
        "streams_per_s": streams.answers / SECONDS,
        "stream_cpu_ms": per_answer_ms(streams, streams_s),
        "ttft_ms_c1": percentile(first.first_s, 0.5) * 1e3,
        "rss_mib_idle": idle_mib,
        "errors": answers.errors + single.errors + streams.errors + first.errors,
    }


def paced(made: Stack) -> dict[str, Any]:
    """Tokens 5 ms apart: in sixteen streams, which share a node's steps, and in a lone one, where
    each token wakes the gateway from idle and cold.
    """
    with (
        serve(GATEWAY_APP) as (port, pid),
        node(made, port, "--engine", "echo", "--tokens-per-s", str(PACED_PER_S)),
    ):
        lone, lone_s = measure(port, pid, streamed(made.key, PACED_TOKENS), clients=1)
        many, many_s = measure(port, pid, streamed(made.key, PACED_TOKENS), clients=CLIENTS)
    return {
        "lone_us": lone_s * 1e6 / max(1, lone.tokens),
        "paced_us": many_s * 1e6 / max(1, many.tokens),
        "errors": lone.errors + many.errors,
    }


def stages(samples: Path, cpu_ms: float) -> dict[str, float]:
    """CPU microseconds per request by part, from the sampler's shares."""
    counts = json.loads(samples.read_text())
    total = sum(counts.values())
    rows = sorted(counts.items(), key=lambda row: -row[1])
    return {part: round(count / total * cpu_ms * 1000, 1) for part, count in rows}


def run(made: Stack, say: Callable[[str], None]) -> dict[str, Any]:
    """All runs, then the figures."""
    bare = control()
    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder) / "samples.json"
        fast = unpaced(made, samples)
        parts = stages(samples, fast["cpu_ms"])
    slow = paced(made)
    say(f"{'':34}{'gateway':>12}{'control':>12}")
    say(f"{'CPU ms per request':34}{fast['cpu_ms']:12.3f}{bare['cpu_ms']:12.3f}")
    say(f"{'p50 ms, one client':34}{fast['p50_ms_c1']:12.3f}{bare['p50_ms']:12.3f}")
    say(f"{'TTFT p50 ms, one client':34}{fast['ttft_ms_c1']:12.3f}")
    say(f"{'requests/s, 16 clients':34}{fast['requests_per_s']:12.0f}")
    say(f"{'20-token streams/s, 16 clients':34}{fast['streams_per_s']:12.0f}")
    for key, what in (("paced_us", "16 streams"), ("lone_us", "1 stream")):
        name = f"CPU us per paced token, {what}"
        say(f"{name:34}{slow[key]:12.1f}{bare[key]:12.1f}")
    say(f"{'resident MiB, idle':34}{fast['rss_mib_idle']:12.0f}")
    say(f"{'errors':34}{fast['errors'] + slow['errors']:12d}")
    say("\nCPU us per request by part (sampled while answering whole):")
    for part, us in parts.items():
        say(f"  {part:20}{us:10.1f}")
    return {
        "cpu_ms_per_request": round(fast["cpu_ms"], 4),
        "control_cpu_ms_per_request": round(bare["cpu_ms"], 4),
        "ratio_to_control": round(fast["cpu_ms"] / bare["cpu_ms"], 2),
        "cpu_us_per_paced_token": round(slow["paced_us"], 1),
        "control_cpu_us_per_paced_token": round(bare["paced_us"], 1),
        "cpu_us_per_lone_paced_token": round(slow["lone_us"], 1),
        "control_cpu_us_per_lone_paced_token": round(bare["lone_us"], 1),
        "streams_per_s": round(fast["streams_per_s"], 1),
        "added_p50_ms_c1": round(fast["p50_ms_c1"], 3),
        "control_p50_ms_c1": round(bare["p50_ms"], 3),
        "added_ttft_ms": round(fast["ttft_ms_c1"], 3),
        "rss_mib_idle": round(fast["rss_mib_idle"], 1),
        "features_on": FEATURES,
        "stages_us": parts,
        "errors": fast["errors"] + slow["errors"],
    }


def main() -> int:
    """Print the table and, last, the JSON line; 1 when a request failed."""
    pin(0, OTHER_CORE)
    print(f"bench-gateway: {describe()}")
    with stack() as made:
        figures = run(made, print)
    print(json.dumps(figures))
    return 1 if figures["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
