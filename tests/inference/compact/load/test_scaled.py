"""FP8: what checkpoints store, what `quantize` rounds to, and products with it."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from inference.compact.batch.tensors import Uploader
from inference.compact.config.shape import read_shape
from inference.compact.grouped import fused
from inference.compact.layers.decoder import Decoder
from inference.compact.layers.project import narrow_agrees, packed
from inference.compact.load.checkpoint import Checkpoint, open_source
from inference.compact.load.placement import choose_placement
from inference.compact.load.weights import Weights, load_weights
from inference.compact.options import CompactOptions
from inference.compact.run.eager import EagerModel
from inference.compact.run.path import compute_path, stored_bytes
from inference.compact.run.runner import Runner
from inference.compact.scaled import E4M3, E4M3_MAX, Scaled, scaled
from inference.compact.schedule.scheduler import Chunk
from inference.errors import ModelError
from tests.inference.compact.native.model import (
    all_logits,
    native_of,
    sequence_of,
)
from tests.inference.compact.shapes import QWEN_EXPERTS
from tests.inference.compact.tiny import Harness, job_of, prompt_of, save_model, tokens_of
from tests.support.shipped import SHIPPED

FP8_TENSOR = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
FP8_BLOCK = {**FP8_TENSOR, "weight_block_size": [32, 16]}


def _compressed(**weights: Any) -> dict[str, Any]:
    group = {"type": "float", "num_bits": 8, "strategy": "channel", **weights}
    groups = {"group_0": {"weights": group, "input_activations": {"dynamic": True}}}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": groups,
    }


CHANNEL = _compressed()
STORED: dict[str, tuple[dict[str, Any], str]] = {
    "tensor": (FP8_TENSOR, "weight_scale"),
    "block": (FP8_BLOCK, "weight_scale_inv"),
    "channel": (CHANNEL, "weight_scale"),
    "compressed block": (
        _compressed(strategy="block", block_structure=[32, 16]),
        "weight_scale",
    ),
}
DOWN = "model.layers.1.mlp.down_proj.weight"


def _stored(weight: Tensor, kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, scales as a file has them, and the values, of random but exact scales."""
    codes = (weight / weight.abs().max() * E4M3_MAX).to(E4M3)
    outputs, k = weight.shape
    if kind == "tensor":
        scale = torch.tensor(float(weight.abs().max()) / E4M3_MAX)
        return codes, scale, codes.float() * scale
    rows, columns = (32, 16) if "block" in kind else (1, k)
    size = -(-outputs // rows), -(-k // columns)
    scales = torch.rand(size, generator=torch.Generator().manual_seed(1)) * 1e-3 + 1e-4
    wide = scales.repeat_interleave(rows, 0)[:outputs].repeat_interleave(columns, 1)[:, :k]
    return codes, scales, codes.float() * wide


def _store(folder: Path, kind: str, **changes: Any) -> dict[str, Tensor]:
    """In place of the folder's projections; returns the values that they stand for."""
    settings, suffix = STORED[kind]
    tensors, values = load_file(folder / "model.safetensors"), {}
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        codes, scales, values[name] = _stored(tensors[name].float(), kind)
        tensors |= {name: codes, f"{name.removesuffix('weight')}{suffix}": scales}
    save_file(tensors, folder / "model.safetensors")
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), "quantization_config": {**settings, **changes}}
    path.write_text(json.dumps(config))
    return values


def _weights(folder: Path, **options: Any) -> Weights:
    shape = read_shape(folder)
    return load_weights(folder, shape, choose_placement(shape, _options(**options)))


def _options(**options: Any) -> CompactOptions:
    changed = {"kernels": "torch", "dtype": "float32", "kv_blocks": 8, **options}
    return CompactOptions(device="cpu", **changed)


def _logits(folder: Path, weights: Weights, tokens: list[int]) -> Tensor:
    shape = read_shape(folder)
    with torch.inference_mode():
        decoder = Decoder(shape, weights, choose_placement(shape, _options()))
        count = len(tokens)
        chunk = Chunk(sequence_of(tokens, [1, 2, 3, 4]), 0, count, count)
        return EagerModel(decoder, Uploader("cpu")).forward([chunk]).clone()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", STORED)
def test_values_are_those_that_were_stored(folder: Path, kind: str) -> None:
    values = _store(folder, kind)
    source = open_source(folder, read_shape(folder))
    found = Checkpoint(source, torch.float32, "cpu", dense=True).matrix(DOWN, 64, 96)
    assert isinstance(found, Scaled) and found.nbytes == 64 * 96 + 64 * 4
    # Blocks are rounded once more, to a scale for each output.
    difference = (found.dense() - values[DOWN]).norm() / values[DOWN].norm()
    assert difference < 0.04 if "block" in kind else difference == 0
    native = Checkpoint(source, torch.float32, "cpu", dense=False).matrix(DOWN, 64, 96)
    assert isinstance(native, Tensor)
    torch.testing.assert_close(native, found.dense(), rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["tensor", "channel"])
def test_a_stored_checkpoint_computes_what_its_values_do(folder: Path, kind: str) -> None:
    values = _store(folder, kind)
    found = _logits(folder, _weights(folder), prompt_of(40))
    path = folder / "model.safetensors"
    rest = {n: t for n, t in load_file(path).items() if "_proj.weight_scale" not in n}
    save_file({**rest, **values}, path)
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    torch.testing.assert_close(found, _logits(folder, _weights(folder), prompt_of(40)))


@pytest.mark.processes
def test_native_code_computes_a_stored_checkpoint(folder: Path) -> None:
    _store(folder, "channel")
    tokens = prompt_of(20)
    found = all_logits(native_of(folder), tokens, [1, 2, 3], [20])
    right = _logits(folder, _weights(folder), tokens)
    # Seen: 0.7 %, and of torch in bfloat16 0.9 %.
    assert (found - right).norm() / right.norm() < 0.02


def test_rounding_keeps_each_output_near() -> None:
    weight = torch.randn(32, 64, generator=torch.Generator().manual_seed(1))
    weight[3], weight[4, 0] = 0, 1e6
    made = scaled(weight)
    error = (made.dense() - weight).abs()
    # Three bits of mantissa, and below the least normal number steps of 2**-9.
    assert bool((error <= weight.abs() / 16 + made.scales[:, None] * 2**-10 * 1.001).all())
    assert made.finite() and not bool(made.dense()[3].any())
    both = fused([made, scaled(weight * 2)])
    assert isinstance(both, Scaled)
    torch.testing.assert_close(both.dense(), torch.cat([made.dense(), scaled(weight * 2).dense()]))
    mixed = fused([made, weight])
    assert isinstance(mixed, Tensor) and torch.equal(mixed[32:], weight)


def test_narrow_products_are_those_of_the_rounded_numbers(folder: Path) -> None:
    shape = read_shape(folder)
    assert narrow_agrees(replace(choose_placement(shape, _options()), dtype="bfloat16"))


def test_logits_and_perplexity_are_near_those_of_full_weights(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tokens = prompt_of(100, seed=3)
    full = _logits(SHIPPED, _weights(SHIPPED), tokens)
    with caplog.at_level(logging.WARNING):
        widened = _logits(SHIPPED, _weights(SHIPPED, quantize="fp8"), tokens)
    assert "fp8 weights are widened to float32 for each product: a cpu" in caplog.text
    targets = torch.tensor(tokens[1:])
    loss = [
        float(torch.nn.functional.cross_entropy(each[:-1], targets)) for each in (full, widened)
    ]
    assert float((widened - full).norm() / full.norm()) < 0.06
    assert abs(loss[1] - loss[0]) < 0.02 * loss[0]


def test_a_request_runs_and_the_path_says_fp8(folder: Path) -> None:
    harness = Harness(folder, kernels="torch", quantize="fp8", kv_blocks=16)
    outputs = harness.run(job_of(prompt_of(10), max_tokens=3))
    assert len(tokens_of(outputs[1, 0])) == 3
    model, placement = harness.runner.model, harness.runner.placement
    assert compute_path(model, placement).kernels == "torch, fp8 weights"
    gpu = compute_path(model, replace(placement, device="cuda"))
    assert "fp8 weights are widened for each product" in gpu.slow
    plain = Runner.load(folder, read_shape(folder), replace(placement, quantize="off"))
    assert stored_bytes(plain.model) is None
    assert isinstance(model, EagerModel)
    head = model.decoder.weights.head.nbytes
    projections = sum(
        affine.weight.nbytes - 4 * affine.weight.shape[0]
        for layer in model.decoder.weights.layers
        for affine in (layer.qkv, layer.out, layer.gate_up, layer.down)
    )
    bytes_read = stored_bytes(model)
    assert bytes_read is not None and projections + head < bytes_read < 1.1 * projections + head


def test_products_are_narrow_where_the_trial_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, options = read_shape(folder), _options(quantize="fp8")
    placement = replace(choose_placement(shape, options), device="cuda", dtype="bfloat16")
    weights = _weights(folder, quantize="fp8")
    for capability, expected in (((8, 6), False), ((9, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda found=capability: found)
        monkeypatch.setattr(
            "inference.compact.layers.project.narrow_agrees", lambda placement: True
        )
        made = packed(replace(weights, layers=list(weights.layers)), shape, placement)
        narrow = [getattr(layer.down.weight, "narrow", None) for layer in made.layers]
        assert narrow == [expected] * shape.layers


@pytest.mark.parametrize(
    ("kind", "changes", "complaint"),
    [
        ("tensor", {"activation_scheme": "static"}, "activation_scheme: 'static' is not supp"),
        ("tensor", {"fmt": "e5m2"}, "fmt: 'e5m2' is not supported"),
        ("block", {"weight_block_size": [32]}, "weight_block_size: must be two sizes"),
        ("block", {"weight_block_size": [16, 16]}, "weight_scale_inv: is .*, must be"),
        ("channel", {"format": "pack-quantized"}, "format: 'pack-quantized' is not supported"),
        ("channel", {"config_groups": {}}, "config_groups: must have one group"),
        ("channel", _compressed(type="int"), r"weights\.type: 'int' is not supported"),
        ("channel", _compressed(strategy="block"), "block_structure: must be there with strat"),
    ],
)
def test_other_forms_are_refused(
    folder: Path, kind: str, changes: dict[str, Any], complaint: str
) -> None:
    _store(folder, kind, **changes)
    with pytest.raises(ModelError, match=complaint):
        _weights(folder)


def test_values_must_be_finite(folder: Path) -> None:
    _store(folder, "channel")
    tensors = load_file(folder / "model.safetensors")
    tensors[f"{DOWN}_scale"][0] = torch.inf
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"down_proj\.weight: holds values that are not finite"):
        _weights(folder)


def test_what_cannot_compute_it_is_told(folder: Path, tmp_path_factory: Any) -> None:
    shape = read_shape(folder)
    with pytest.raises(ModelError, match="^kernels: native code cannot be used: fp8 was asked"):
        choose_placement(shape, CompactOptions(device="cpu", kernels="native", quantize="fp8"))
    experts = tmp_path_factory.mktemp("experts")
    save_model(experts, "qwen3-moe", **QWEN_EXPERTS)
    with pytest.raises(ModelError, match="^quantize: fp8 is for models without experts"):
        choose_placement(read_shape(experts), _options(quantize="fp8"))
