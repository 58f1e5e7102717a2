"""What a model computes with, told from what was chosen for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference.compact.config.shape import read_shape
from inference.compact.layers.ops import PLAIN, LayerOps
from inference.compact.load.placement import Placement, choose_placement
from inference.compact.native.choice import chosen, reason_against
from inference.compact.options import CompactOptions
from inference.compact.run.eager import EagerModel
from inference.compact.run.graphs import RecordedModel
from inference.compact.run.path import compute_path
from inference.compact.run.runner import LoadedModel, Runner
from inference.contract.roofline import ComputePath
from tests.inference.compact.tiny import save_model
from tests.support.shipped import SHIPPED

# Torch's own, as another one that was found.
FUSED = LayerOps(add_norm=PLAIN.add_norm, place_heads=PLAIN.place_heads, gate=PLAIN.gate)


def _loaded(folder: Path, **options: Any) -> tuple[Runner, Placement]:
    shape = read_shape(folder)
    placement = choose_placement(shape, CompactOptions(device="cpu", kv_bytes=1 << 24, **options))
    return Runner.load(folder, shape, placement), placement


@pytest.mark.processes
def test_native_code_names_its_instruction_set() -> None:
    runner, placement = _loaded(SHIPPED)
    reason = reason_against(read_shape(SHIPPED), placement.block_size)
    path = compute_path(runner.model, placement)
    if reason is None:
        assert path == ComputePath(kernels=f"native {chosen()[0].name}")
    else:
        assert path.kernels == "torch" and reason in path.slow


@pytest.mark.parametrize(
    ("found", "kernels", "slow"),
    [
        (("decode", "ops", "graphs"), "triton", ""),
        (("decode", "ops"), "triton", "steps are not recorded as CUDA graphs"),
        (("ops",), "triton", "torch computes decode attention, not Triton"),
        (("decode",), "triton", "torch computes norms and gates, not Triton"),
    ],
)
def test_a_gpu_says_which_of_its_kernels_are_missing(
    tmp_path: Path, found: tuple[str, ...], kernels: str, slow: str
) -> None:
    save_model(tmp_path)
    runner, placement = _loaded(tmp_path, kernels="torch", dtype="bfloat16")
    eager = runner.model
    assert isinstance(eager, EagerModel)
    decoder = eager.decoder
    decoder.kernels = replace(decoder.kernels, decode_masks="decode" not in found)
    decoder.ops = FUSED if "ops" in found else PLAIN
    model: LoadedModel = eager
    if "graphs" in found:
        model = RecordedModel(eager, lambda step: step, rows_max=0)
    path = compute_path(model, replace(placement, device="cuda"))
    assert path.kernels == kernels
    assert path.slow.startswith(slow) if slow else not path.slow
    decoder.kernels = replace(decoder.kernels, decode_masks=True, prefill_masks=True)
    decoder.ops = PLAIN
    assert compute_path(eager, replace(placement, device="cuda")).kernels == "torch"
