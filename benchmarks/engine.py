"""`make bench-engine`: the compact engine beside vLLM, transformers and llama.cpp.

The first two compute the same prompts, and llama.cpp the same quantized files. `torch` is the
compact engine without its own native code, as it runs where that cannot.

Every engine has a process of its own and waits while another runs. The sides take turns and the
figures of the reference workload are medians over the passes, since a shared host drifts by more
than engines differ. vLLM runs at its best setting (`sides.vllm_best`).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from tokenizers import Tokenizer

from benchmarks.checkpoint import write_checkpoint
from benchmarks.llama import beside_llama
from benchmarks.machine import cpu_flags, describe
from benchmarks.recorder import Recorder, spread
from benchmarks.sides.protocol import Side
from benchmarks.sides.started import compact, run, transformers, vllm
from benchmarks.workloads import (
    OFFLINE_REQUESTS,
    Workload,
    offline,
    reference,
    reference_prompts,
)

MODEL = Path(__file__).parent.parent / "inference/assets/sluice-5m"
PASSES = 3
WARM_TOKENS = 8
# Requests of each width: enough of them for a percentile where one takes no time.
WIDTHS = {1: 4, 8: 16, 50: 50}
OFFLINE_WIDTH = 256
# Static batches take minutes: one pass of the reference workload, and the first of the requests.
TRANSFORMERS_REQUESTS = 16
CANCELLED_REQUESTS = 10_000
BANDWIDTH_TOKENS = 200
BUSY_WIDTH = 8
UNBOUNDED_MS = 3_600_000
SPIN = "while True: pass"
BEGAN_S = time.monotonic()


def side_by_side(
    recorder: Recorder, sides: list[Side], vocabulary: int, *, passes_max: int = PASSES
) -> dict[str, dict[str, dict[str, float]]]:
    """The reference workload: every side at every width in every pass, in turns."""
    for side in sides:
        for width in WIDTHS:
            work = reference(vocabulary, width, width, run=f"warm {width}")
            run(side, replace(work, outputs=[WARM_TOKENS] * width))
    for number in range(passes_max):
        for width, count in WIDTHS.items():
            work = reference(vocabulary, count, width, run=f"{number} {width}")
            for side in sides[number % len(sides) :] + sides[: number % len(sides)]:
                recorder.keep(f"{side.name}, width {width}", run(side, work).figures())
                note(f"pass {number + 1}, width {width}, {side.name}")
    return {
        side.name: {
            str(width): recorder.medians(f"{side.name}, width {width}", 2) for width in WIDTHS
        }
        for side in sides
    }


def second_ttft(side: Side, vocabulary: int) -> dict[str, Any]:
    """The same prompt twice, several times over: ratio of the medians, and what was cached."""
    firsts: list[float] = []
    seconds: list[float] = []
    cached: set[int] = set()
    for number in range(8):
        (prompt,) = reference_prompts(vocabulary, 1, run=f"twice {number}")
        for times in (firsts, seconds):
            answer = side.call("run", prompts=[prompt], outputs=[2], width=1)
            times.append(answer["first_s"][0])
        cached.add(answer["cached"][0])
    return {
        "second_ttft_ratio": round(median(seconds) / median(firsts), 3),
        "first_ttft_ms": round(median(firsts) * 1e3, 2),
        "second_cached_tokens": sorted(cached),
    }


def bandwidth(recorder: Recorder, vocabulary: int) -> dict[str, Any]:
    """Batch 1 decode of 100 M parameters against the read bandwidth of the same process."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        model = Path(folder) / "random-100m"
        weights = write_checkpoint(model, MODEL, vocabulary=vocabulary)
        with compact(model, width=1, kv_mib=256) as side:
            work = Workload([[300] * 32], [BANDWIDTH_TOKENS], 1)
            run(side, work)
            for _ in range(PASSES):
                read = side.call("read_gb_s")
                share = weights / median(run(side, work).gap_s) / 1e9 / read
                recorder.keep("bandwidth", {"bandwidth_share_100m": share, "read_gb_s": read})
    return recorder.medians("bandwidth")


def busy_neighbour(recorder: Recorder, side: Side, vocabulary: int) -> dict[str, Any]:
    """Eight streams with another process spinning on one core, against the same without."""
    for number in range(PASSES):
        work = reference(vocabulary, 16, BUSY_WIDTH, run=f"busy {number}")
        alone = run(side, work).figures()
        neighbour = subprocess.Popen([sys.executable, "-c", SPIN])
        try:
            work = reference(vocabulary, 16, BUSY_WIDTH, run=f"busier {number}")
            beside = run(side, work).figures()
        finally:
            neighbour.kill()
            neighbour.wait()
        share = beside["out_tok_s"] / alone["out_tok_s"]
        ratio = beside["itl_p99_ms"] / alone["itl_p99_ms"]
        recorder.keep("busy neighbour", {"out_tok_s_share": share, "itl_p99_ratio": ratio})
    return recorder.medians("busy neighbour")


def short_beside_long(recorder: Recorder, side: Side) -> dict[str, Any]:
    """Beside the same engine whose steps with long prompts have no bound in time."""
    with compact(MODEL, width=64, mixed_ms=UNBOUNDED_MS) as unbounded:
        for _ in range(PASSES):
            before = unbounded.call("short_beside_long")
            recorder.keep("short beside long, unbounded", before)
            now = side.call("short_beside_long")
            share = now["prompt_tokens_s"] / before["prompt_tokens_s"]
            recorder.keep("short beside long", {**now, "long_throughput_x_unbounded": share})
    return recorder.medians("short beside long")


def note(what: str) -> None:
    """Progress, on standard error."""
    sys.stderr.write(f"{time.monotonic() - BEGAN_S:6.0f} s  {what}\n")


def measure(recorder: Recorder) -> dict[str, Any]:
    """Everything, in about the order of the table."""
    vocabulary = Tokenizer.from_file(str(MODEL / "tokenizer.json")).get_vocab_size()
    figures: dict[str, Any] = {"model": MODEL.name, "cores": os.cpu_count(), "isa": cpu_flags()}
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(compact(MODEL, width=64))
        theirs = stack.enter_context(vllm(MODEL, width=OFFLINE_WIDTH))
        note("engines are loaded")
        with compact(MODEL, width=64, name="torch", kernels="torch") as alone:
            sides = [ours, theirs, alone]
            figures["reference"] = side_by_side(recorder, sides, vocabulary)
        many = offline(vocabulary, OFFLINE_REQUESTS, 64)
        wide = offline(vocabulary, OFFLINE_REQUESTS, OFFLINE_WIDTH)
        for _ in range(PASSES):
            for side, work in ((ours, many), (theirs, wide)):
                recorder.keep(f"offline {side.name}", run(side, work).figures()["out_tok_s"])
        figures["offline_256"] = {
            **spread("compact", recorder.passes["offline compact"], 1),
            **spread("vllm", recorder.passes["offline vllm"], 1),
        }
        note("offline set")
        figures |= second_ttft(ours, vocabulary)
        figures["busy_neighbour"] = busy_neighbour(recorder, ours, vocabulary)
        figures |= short_beside_long(recorder, ours)
        note("short requests beside long ones")
        after = ours.call("cancels", requests=CANCELLED_REQUESTS)
        figures["leaked_blocks"] = after["leaked"]
        figures["cancelled_requests"] = after["cancelled"]
        figures["kv_pool_exceeded_bytes"] = ours.call("kv_exceeded")
        if figures["kv_pool_exceeded_bytes"] is None:
            figures["why_kv_pool_exceeded_bytes"] = "torch keeps the cache, native code cannot run"
    figures |= bandwidth(recorder, vocabulary)
    note("bandwidth")
    figures["llama_cpp"] = beside_llama(recorder, MODEL)
    note("llama.cpp")
    with transformers(MODEL) as oracle:
        figures["reference"] |= side_by_side(recorder, [oracle], vocabulary, passes_max=1)
        few = offline(vocabulary, TRANSFORMERS_REQUESTS, TRANSFORMERS_REQUESTS)
        figures["offline_256"]["transformers"] = run(oracle, few).figures()["out_tok_s"]
    figures["offline_256_requests_of_transformers"] = TRANSFORMERS_REQUESTS
    return figures


def table(figures: dict[str, Any]) -> None:
    """The same for people."""
    print(f"{'':14}{'width':>8}{'out tok/s':>12}{'TTFT p95 ms':>14}{'ITL p99 ms':>13}")
    for name, widths in figures["reference"].items():
        for width, row in widths.items():
            cells = (row["out_tok_s"], row["ttft_p95_ms"], row["itl_p99_ms"])
            print(f"{name:14}{width:>8}{cells[0]:12.1f}{cells[1]:14.2f}{cells[2]:13.2f}")
    best = figures["reference"]
    for name, other in (("compact", "vllm"), ("torch", "vllm"), ("compact", "transformers")):
        ratios = [
            f"{best[name][width]['out_tok_s'] / best[other][width]['out_tok_s']:.2f}"
            for width in best[other]
        ]
        print(f"{name} / {other}: {' / '.join(ratios)}")
    for key, value in figures.items():
        if key != "reference":
            print(f"{key}: {value}")


def main() -> int:
    """Print the table and, last, the JSON line."""
    print(f"bench-engine: {describe()}")
    recorder = Recorder("engine", passes=PASSES, widths=list(WIDTHS), offline=OFFLINE_WIDTH)
    figures = measure(recorder)
    table(figures)
    recorder.finish(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
