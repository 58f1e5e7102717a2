"""GPTQ and AWQ checkpoints: every value as their formats define it, bad files refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from inference.compact.config.shape import read_shape
from inference.compact.grouped import Grouped
from inference.compact.load.checkpoint import Checkpoint, open_source
from inference.compact.load.placement import choose_placement
from inference.compact.load.weights import load_weights
from inference.compact.options import CompactOptions
from inference.errors import ModelError
from tests.inference.compact.native.model import eager_logits
from tests.inference.compact.tiny import prompt_of, save_model

OPTIONS = CompactOptions(device="cpu", dtype="float32", kernels="torch", kv_blocks=4)
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}
# Which output each four bits of an AWQ word belong to.
AWQ_PLACES = (0, 2, 4, 6, 1, 3, 5, 7)
DOWN = "model.layers.1.mlp.down_proj"
UP = "model.layers.1.mlp.up_proj"
Made = dict[str, Tensor]


def _words(codes: Tensor, bits: int, places: tuple[int, ...]) -> Tensor:
    """Codes `[rows, n]` into words along n, code by code."""
    per_word = len(places)
    words = torch.zeros(codes.shape[0], codes.shape[1] // per_word, dtype=torch.int64)
    for shift, place in enumerate(places):
        words |= codes[:, place::per_word].long() << shift * bits
    return (words - (words >> 31 << 32)).to(torch.int32)


def _quantize(weight: Tensor, settings: dict[str, Any]) -> tuple[Made, Tensor]:
    """A module's tensors, and the values that they stand for, `[outputs, k]`."""
    bits, (outputs, k) = settings["bits"], weight.shape
    group = settings["group_size"] if settings["group_size"] > 0 else k
    apart = weight.view(outputs, k // group, group)
    low, high = apart.amin(2).clamp(max=0), apart.amax(2).clamp(min=0)
    scales = ((high - low) / (2**bits - 1)).half().float()
    zeros = (-low / scales).round().clamp(1, 2**bits - 1)
    codes = (apart / scales[..., None] + zeros[..., None]).round().clamp(0, 2**bits - 1)
    values = ((codes - zeros[..., None]) * scales[..., None]).view(outputs, k)
    codes = codes.view(outputs, k)
    made = {"scales": scales.t().contiguous().half()}
    if settings["quant_method"] == "awq":
        made["qweight"] = _words(codes.t(), 4, AWQ_PLACES)
        made["qzeros"] = _words(zeros.t(), 4, AWQ_PLACES)
        return made, values
    places = tuple(range(32 // bits))
    stored = zeros.t() - int(settings.get("checkpoint_format") != "gptq_v2")
    made["qweight"] = _words(codes, bits, places).t().contiguous()
    made["qzeros"] = _words(stored, bits, places)
    made["g_idx"] = torch.arange(k, dtype=torch.int32) // group
    made["bias"] = torch.zeros(outputs)
    return made, values


def _pack(folder: Path, settings: dict[str, Any]) -> Made:
    """In place of the folder's projections; returns the values that they stand for."""
    tensors = load_file(folder / "model.safetensors")
    dense = {}
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        module = name.removesuffix(".weight")
        made, dense[name] = _quantize(tensors.pop(name), settings)
        tensors |= {f"{module}.{part}": each for part, each in made.items()}
    save_file(tensors, folder / "model.safetensors")
    _edit(folder, quantization_config=settings)
    return dense


def _edit(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _change(folder: Path, name: str, change: Callable[[Tensor], Tensor | None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    changed = change(tensors.pop(name))
    save_file(tensors | ({} if changed is None else {name: changed}), folder / "model.safetensors")


def _load(folder: Path) -> None:
    shape = read_shape(folder)
    load_weights(folder, shape, choose_placement(shape, OPTIONS))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "settings",
    [
        GPTQ,
        {**GPTQ, "bits": 8},
        {**GPTQ, "group_size": -1},
        {**GPTQ, "checkpoint_format": "gptq_v2"},
        {**GPTQ, "desc_act": True},
        AWQ,
        {**AWQ, "group_size": -1},
    ],
    ids=str,
)
def test_values_are_those_that_were_packed(folder: Path, settings: dict[str, Any]) -> None:
    values = _pack(folder, settings)
    shape = read_shape(folder)
    checkpoint = Checkpoint(open_source(folder, shape), torch.float32, "cpu", dense=False)
    for module, size in ((DOWN, (64, 96)), (UP, (96, 64))):
        found = checkpoint.matrix(f"{module}.weight", *size)
        assert isinstance(found, Grouped)
        assert (found.bits, found.shape) == (settings["bits"], size)
        assert found.group == (settings["group_size"] if settings["group_size"] > 0 else size[1])
        torch.testing.assert_close(found.dense(), values[f"{module}.weight"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("settings", [GPTQ, AWQ], ids=["gptq", "awq"])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_logits_are_those_of_the_same_values(
    tmp_path: Path, kind: str, settings: dict[str, Any]
) -> None:
    save_model(tmp_path, kind)
    original = load_file(tmp_path / "model.safetensors")
    # Biases of zeros are no part of the packed modules, those of qwen2 are.
    values = _pack(tmp_path, settings)
    biases = {name: each for name, each in original.items() if name.endswith(".bias")}
    packed = load_file(tmp_path / "model.safetensors") | biases
    save_file(packed, tmp_path / "model.safetensors")
    tokens = prompt_of(40)
    found = eager_logits(tmp_path, tokens)
    save_file(original | values, tmp_path / "model.safetensors")
    _edit(tmp_path, quantization_config=None)
    torch.testing.assert_close(found, eager_logits(tmp_path, tokens), rtol=0, atol=0.1)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "'bitsandbytes'"),
        ({"load_in_8bit": True}, "quant_method: None"),
        ({**GPTQ, "bits": 3}, "bits: 3"),
        ({**AWQ, "bits": 8}, "bits: 8"),
        ({**GPTQ, "group_size": 0}, "group_size: 0"),
        ({**GPTQ, "group_size": None}, "group_size: must be"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "checkpoint_format: 'marlin'"),
        ({**AWQ, "version": "gemv"}, "version: 'gemv'"),
        ("int4", "not a JSON object"),
    ],
    ids=str,
)
def test_other_forms_are_refused_by_name(folder: Path, settings: Any, named: str) -> None:
    _edit(folder, quantization_config=settings)
    with pytest.raises(ModelError, match=rf"config\.json: quantization_config.*{named}"):
        read_shape(folder)


@pytest.mark.parametrize(
    ("part", "change", "named"),
    [
        ("qweight", lambda _: None, rf"no weights for {DOWN}.weight"),
        ("qzeros", lambda _: None, rf"no weights for {DOWN}.qzeros"),
        ("scales", lambda _: None, rf"no weights for {DOWN}.scales"),
        ("qweight", lambda each: each[1:].contiguous(), rf"{DOWN}.qweight: is \(11, 64\)"),
        ("qweight", Tensor.float, rf"{DOWN}.qweight: torch.float32 is not supported"),
        ("qzeros", lambda each: each[:1].contiguous(), rf"{DOWN}.qzeros: is \(1, 8\)"),
        ("scales", lambda each: each * float("nan"), rf"{DOWN}.weight: holds values"),
        ("g_idx", lambda each: each.flip(0), rf"{DOWN}.g_idx: groups of inputs out of order"),
        ("g_idx", lambda each: each[1:].clone(), rf"{DOWN}.g_idx: is \(95,\)"),
        ("bias", torch.ones_like, rf"{DOWN}.bias: is not part of"),
    ],
)
def test_damage_is_named(
    folder: Path, part: str, change: Callable[[Tensor], Tensor | None], named: str
) -> None:
    _pack(folder, GPTQ)
    _change(folder, f"{DOWN}.{part}", change)
    with pytest.raises(ModelError, match=rf"{named}"):
        _load(folder)


def test_groups_must_divide_the_inputs(folder: Path) -> None:
    _pack(folder, GPTQ)
    _edit(folder, quantization_config={**GPTQ, "group_size": 128})
    with pytest.raises(ModelError, match=r"proj\.weight: \(\d+, 64\) cannot be in groups of 128"):
        _load(folder)
