"""`make bench-gpu`: decode, prefill and the reference workload on a GPU, beside its ceilings.

Weights are random, since speed does not depend on them; the sizes are those of Llama 1B and 8B,
each in bfloat16 and in FP8. MFU is of products in bfloat16 in both.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.ceilings import ceilings
from benchmarks.gpu.models import MODELS, random_weights, write_config
from benchmarks.gpu.serving import serve
from benchmarks.gpu.steps import BATCHES, OPTIONS, PREFILLS, VARIANTS, decode, prefill, variant
from benchmarks.recorder import Recorder
from inference.compact.config.shape import read_shape
from inference.compact.load.placement import choose_placement
from inference.compact.options import FP8, CompactOptions
from inference.compact.run.path import compute_path, stored_bytes
from inference.compact.run.roofline import Work
from inference.compact.run.runner import Runner

QUANTIZE = ("off", FP8)


def measure() -> dict[str, Any]:
    """Everything, in about the order of the table."""
    figures: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        **{name: version(name) for name in ("torch", "triton")},
        **ceilings(),
    }
    for part in ("decode", "prefill", "reference", "ready_s", "kernels"):
        figures[part] = {}
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        for name in MODELS:
            path = write_config(Path(folder), name)
            for quantize in QUANTIZE:
                _measure_model(path, replace(OPTIONS, quantize=quantize), figures)
                torch.cuda.empty_cache()
    return figures


def _measure_model(path: Path, options: CompactOptions, figures: dict[str, Any]) -> None:
    model = path.name if options.quantize == "off" else f"{path.name} {options.quantize}"
    began = time.monotonic()
    shape = read_shape(path)
    placement = choose_placement(shape, options)
    with torch.inference_mode():
        runner = Runner.over(random_weights(shape, placement), shape, placement)
    figures["ready_s"][model] = round(time.monotonic() - began, 1)
    figures["kernels"][model] = compute_path(runner.model, placement).kernels
    work = Work(shape, stored_bytes=stored_bytes(runner.model))
    by_variant = figures["decode"][model] = {}
    for name in VARIANTS:
        with variant(runner, name):
            by_variant[name] = {
                str(batch): decode(runner, placement, work, batch, figures["read_gb_s"])
                for batch in BATCHES
            }
        note(f"{model}: decode, {name}")
    figures["prefill"][model] = {
        f"{prompts}x{length}": prefill(
            runner, placement, work, prompts, length, figures["matmul_tflop_s"]
        )
        for prompts, length in PREFILLS
    }
    note(f"{model}: prefill")
    figures["reference"][model] = serve(path, options, runner, shape.vocab_size)
    note(f"{model}: reference workload")


def note(what: str) -> None:
    """Progress, on standard error."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')}  {what}\n")


def table(figures: dict[str, Any]) -> None:
    """The same for people."""
    print(f"\n{'decode':24}{'batch':>7}{'step ms':>10}{'tok/s':>10}{'of roofline':>13}")
    for model, variants in figures["decode"].items():
        for name, batches in variants.items():
            for batch, row in batches.items():
                cells = f"{row['step_ms']:10.3f}{row['tok_s']:10.1f}{row['roofline_share']:13.1%}"
                print(f"{model + ' ' + name:24}{batch:>7}{cells}")
    print(f"\n{'prefill':24}{'':7}{'step ms':>10}{'tok/s':>10}{'MFU':>13}")
    for model, sizes in figures["prefill"].items():
        for size, row in sizes.items():
            cells = f"{row['step_ms']:10.2f}{row['tok_s']:10.0f}{row['mfu']:13.1%}"
            print(f"{model + ' ' + size:31}{cells}")
    print(f"\n{'reference workload':24}{'width':>7}{'tok/s':>10}{'TTFT p50':>10}{'p95':>8}", end="")
    print(f"{'ITL p50':>9}{'p99 ms':>8}")
    for model, samplings in figures["reference"].items():
        for sampling, widths in samplings.items():
            for width, row in widths.items():
                rest = f"{row['ttft_p50_ms']:10.2f}{row['ttft_p95_ms']:8.2f}"
                rest += f"{row['itl_p50_ms']:9.2f}{row['itl_p99_ms']:8.2f}"
                print(f"{model + ' ' + sampling:24}{width:>7}{row['out_tok_s']:10.1f}{rest}")


def main() -> int:
    """Print the table and, last, the JSON line."""
    if not torch.cuda.is_available():
        sys.stderr.write("bench-gpu: torch sees no CUDA device\n")
        return 1
    recorder = Recorder("gpu")
    figures = measure()
    ceiling = ("read_gb_s", "copy_gb_s", "matmul_tflop_s", "ready_s", "kernels")
    print(f"bench-gpu: {figures['device']}, torch {figures['torch']}, triton {figures['triton']}")
    print(", ".join(f"{name} {figures[name]}" for name in ceiling))
    table(figures)
    recorder.finish(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
