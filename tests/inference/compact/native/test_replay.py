"""Recorded steps without Python: on an emulated 64-bit Arm, and watched by the sanitizers of the
compiler.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inference.compact.load.checkpoint import Affine
from inference.compact.load.rounding import quantized
from inference.compact.load.weights import Weights
from inference.compact.native.build import ARM, INSTRUCTION_SETS, InstructionSet, native_library
from inference.compact.schedule.scheduler import Chunk
from tests.inference.compact.native.model import decoder_of, save_rounded, sequence_of, tried_sets
from tests.inference.compact.native.replay import Recorder, build_driver, replay
from tests.inference.compact.shapes import SHAPES
from tests.inference.compact.tiny import prompt_of

# Compilers, which sanitizers make slow, and emulators.
pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
# Norm of all differences as a share of that of the logits: sums are not rounded alike everywhere.
TOLERANCES = {"dense": 0.03, "coarse": 0.1}
THREADS = 3
SPIN_NS = 1000
# The best that there is, the plainest, and that with tiles, if emulated.
WATCHED = {each.name: each for each in (tried_sets()[0], *tried_sets()[-2:])}.values()
SANITIZERS = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "thread": ("-fsanitize=thread",),
}


Recorded = list[tuple[Path, torch.Tensor]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Steps of a model, once with quantized weights, and their logits."""
    folder = tmp_path_factory.mktemp("model")
    kind, overrides = SHAPES["qwen3-window"]
    save_rounded(folder, kind, **(overrides | {"vocab_size": 333, "intermediate_size": 112}))
    return [_record(folder, "dense", lambda each: each), _record(folder, "coarse", _coarse)]


def _coarse(weights: Weights) -> Weights:
    """Layers of 4 and 8 bits in turn; `k` of down is not a multiple of 32."""
    for index, layer in enumerate(weights.layers):
        names = ("qkv", "out", "gate_up")
        made = {name: quantized(getattr(layer, name).weight, 4 << index % 2) for name in names}
        changed: dict[str, Any] = {
            name: Affine(made[name], getattr(layer, name).bias) for name in names
        }
        weights.layers[index] = replace(layer, **changed)
    return weights


def _record(
    folder: Path, name: str, change: Callable[[Weights], Weights]
) -> tuple[Path, torch.Tensor]:
    """Windows, prompts beside decoding, a block that another fills in the same step, and rests of
    every kind; between some of the steps, other threads take over.
    """
    recorder = Recorder(native_library(INSTRUCTION_SETS[-1]))
    native = decoder_of(folder, recorder, change, kv_blocks=16, threads=THREADS)
    shared = prompt_of(64)
    first = sequence_of(shared + prompt_of(30, seed=1), [0, 1, 2])
    second = sequence_of(shared + prompt_of(40, seed=2), [0, 1, 3, 4])
    long = sequence_of(prompt_of(150, seed=3), [5, 6, 7, 8, 9])
    native.forward([Chunk(first, 0, 94, 1), Chunk(second, 64, 37, 37)])
    for step in range(12):
        native.forward([Chunk(second, 101 + step % 3, 1, 1), Chunk(long, 11 * step, 11, step % 2)])
        if step % 4 == 3:
            recorder.reopen(threads=step % THREADS + 1, spin_ns=SPIN_NS * step)
    native.forward([Chunk(long, 132, 18, 0)])
    native.close()
    path = folder / name
    return path, recorder.write(path)


def _agrees(recorded: Recorded, *command: str) -> bool:
    return all(
        (replay(path, *command) - expected).norm() < TOLERANCES[path.name] * expected.norm()
        for path, expected in recorded
    )


@pytest.mark.parametrize(
    "isa", [each for each in INSTRUCTION_SETS if ARM in each.machines], ids=lambda each: each.name
)
def test_arm(recorded: Recorded, isa: InstructionSet, tmp_path: Path) -> None:
    compiler, emulator = "aarch64-linux-gnu-gcc", "qemu-aarch64"
    assert shutil.which(compiler) and shutil.which(emulator), "make tools installs them"
    program = build_driver(tmp_path, compiler, "-O3", "-static", *isa.flags)
    assert _agrees(recorded, emulator, "-cpu", "max", str(program))


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("isa", WATCHED, ids=lambda each: each.name)
def test_sanitizers_find_nothing(
    recorded: Recorded, isa: InstructionSet, sanitizer: str, tmp_path: Path
) -> None:
    program = build_driver(tmp_path, "cc", "-O1", "-g", *SANITIZERS[sanitizer], *isa.flags)
    assert _agrees(recorded, str(program))
