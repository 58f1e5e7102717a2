"""`make bench-load`: whether `sluice load` tells what `vllm bench serve` tells, and how fast it is.

Both ask the same server by turns, in a closed loop of prompts of 1,025 tokens with 150 back: first
a bare one that takes the same time for each, which shows what two clients make of one answer, then
`vllm serve` of the shipped model, whose own speed differs from run to run. One core drives a bare
server on the other at 500 requests a second.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.machine import describe, pin
from benchmarks.recorder import Recorder
from benchmarks.stack import GATEWAY_CORE, OTHER_CORE, free_port, listening, process, wait_for
from controlplane.insights.load.workloads import OUTPUT_TOKENS, PROMPT_TOKENS
from tests.support.shipped import SHIPPED
from tests.support.vllm_server import ENVIRONMENT, vllm_name, vllm_python, vllm_server

PAIRS, STREAMS, REQUESTS = 5, 2, 36
# What its chat template adds to a prompt.
TEMPLATE_TOKENS = 5
RATE, RATE_S, TOKENS, GAP_MS = 500, 20, 16, 20
# What the bare server takes for a first token and for each after it, as the engine does.
PACED_FIRST_MS, PACED_GAP_MS = 135.0, 5.5
WITHIN = 0.03
TIMES = {"ttft": "ttft", "itl": "itl", "tpot": "tpot", "e2el": "total"}
Figures = dict[str, float]


def ours(folder: Path, url: str, label: str, *options: str) -> dict[str, Any]:
    """The record of one run."""
    argv = [sys.executable, "manage.py", "sluice", "load", "--url", url, "--model", SHIPPED.name]
    argv += ["--label", label, "--folder", str(folder), *options]
    subprocess.run(argv, env=os.environ | {"SLUICE_DATA": str(folder)}, check=True)
    found: dict[str, Any] = json.loads((folder / f"{label}-001.json").read_bytes())
    return found


def asked_by_us(folder: Path, url: str, number: int) -> Figures:
    record = ours(
        folder, url, f"agree-{number}", "--streams", str(STREAMS), "--requests", str(REQUESTS),
        "--turns", "1", "--seconds", "300", "--extra-body", '{"ignore_eos": true}',
    )  # fmt: skip
    times = record["kinds"]["reference"]["times_ms"]
    found = {"output_tokens_s": record["output_tokens_s"]}
    for theirs, name in TIMES.items():
        found |= {f"{theirs}_{key}_ms": times[name][key] for key in ("mean", "p50")}
    return found


def asked_by_vllm(folder: Path, url: str, number: int) -> Figures:
    kept = folder / f"vllm-{number}.json"
    argv = [
        vllm_python(), "-W", "ignore", "-m", "vllm.entrypoints.cli.main", "bench", "serve",
        "--backend", "openai-chat", "--endpoint", "/v1/chat/completions",
        "--base-url", url.removesuffix("/v1"), "--model", str(SHIPPED),
        "--served-model-name", SHIPPED.name, "--dataset-name", "random",
        "--random-input-len", str(PROMPT_TOKENS - TEMPLATE_TOKENS),
        "--random-output-len", str(OUTPUT_TOKENS), "--ignore-eos", "--temperature", "0",
        "--num-prompts", str(REQUESTS), "--max-concurrency", str(STREAMS), "--seed", str(number),
        "--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result",
        "--result-filename", str(kept), "--disable-tqdm",
    ]  # fmt: skip
    named = {"PYTHONPATH": str(folder / "names")}
    subprocess.run(argv, env=os.environ | ENVIRONMENT | named, check=True, capture_output=True)
    told = json.loads(kept.read_bytes())
    found = {"output_tokens_s": told["output_throughput"]}
    for name in TIMES:
        found[f"{name}_mean_ms"] = told[f"mean_{name}_ms"]
        found[f"{name}_p50_ms"] = told[f"median_{name}_ms"]
    return found


def by_turns(recorder: Recorder, folder: Path, server: str, url: str) -> dict[str, list[float]]:
    """Ours to theirs, of each pair of runs but the first; who is first takes turns.

    A server grows faster or slower over minutes, so a run is divided by the one beside it.
    """
    own = folder / server
    own.mkdir()
    vllm_name(own / "names")
    sides = {f"ours_{server}": asked_by_us, f"vllm_{server}": asked_by_vllm}
    for number in range(PAIRS + 1):
        for side in sorted(sides, reverse=number % 2 == 1):
            found = sides[side](own, url, number)
            print(side, {name: round(value, 2) for name, value in found.items()}, flush=True)
            if number:
                recorder.keep(side, found)
    pairs = list(zip(*(recorder.passes[side] for side in sides), strict=True))
    return {
        name: sorted(round(mine[name] / theirs[name], 4) for mine, theirs in pairs)
        for name in pairs[0][0]
    }


def agree(recorder: Recorder, folder: Path) -> tuple[Figures, dict[str, list[float]]]:
    """Medians of the pairs on the paced server; and least, median and most on the engine."""
    with bare_server(OUTPUT_TOKENS, PACED_GAP_MS, PACED_FIRST_MS) as url:
        paced = by_turns(recorder, folder, "paced", f"{url}/v1")
    with vllm_server(folder / "vllm.log", "--no-enable-prefix-caching") as server:
        first = psutil.Process(server.process.pid)
        for each in (first, *first.children(recursive=True)):
            pin(each.pid, GATEWAY_CORE)
        engine = by_turns(recorder, folder, "engine", server.url)
    medians = {name: statistics.median(pairs) for name, pairs in paced.items()}
    spread = {name: [each[0], statistics.median(each), each[-1]] for name, each in engine.items()}
    return medians, spread


@contextmanager
def bare_server(tokens: int, gap_ms: float, first_ms: float) -> Iterator[str]:
    """The address of one on the other core."""
    port = free_port()
    told = (str(each) for each in (port, tokens, gap_ms, first_ms))
    with process([sys.executable, "-m", "benchmarks.driving.bare", *told]) as pid:
        wait_for(lambda: listening(port), "the bare server")
        pin(pid, GATEWAY_CORE)
        yield f"http://127.0.0.1:{port}"


def drive(recorder: Recorder, folder: Path) -> Figures:
    """At `RATE`: answers a second, CPU of the command for each second, and how late it was."""
    with bare_server(TOKENS, GAP_MS, 0.0) as url:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        record = ours(
            folder, url, "drive", "--rate", str(RATE), "--arrivals",
            "constant", "--seconds", str(RATE_S), "--requests", "50000", "--concurrency", "1024",
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = {
        "sent_per_s": record["requests"] / RATE_S,
        "failed": record["requests"] - record["answered"],
        "cpu_share": round(cpu_s / record["seconds"], 3),
        "sent_late_p99_ms": record["sent_late_p99_ms"],
    }
    recorder.keep("drive", found)
    return found


def main() -> int:
    """Print every run and, last, the JSON line; 1 when a bar was missed."""
    print(f"bench-load: {describe()}")
    pin(0, OTHER_CORE)
    recorder = Recorder("load", pairs=PAIRS, streams=STREAMS, requests=REQUESTS, rate=RATE)
    with tempfile.TemporaryDirectory() as name:
        driven = drive(recorder, Path(name))
        ratios, spread = agree(recorder, Path(name))
    met = all(abs(ratio - 1) <= WITHIN for ratio in ratios.values())
    met = met and driven["sent_per_s"] >= RATE and not driven["failed"]
    recorder.finish(
        {**driven, "ours_to_vllm": ratios, "ours_to_vllm_on_the_engine": spread, "met": met}
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
