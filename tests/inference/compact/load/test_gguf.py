"""GGUF files: every value as the reference reads it, rows in our order, bad files refused."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.gguf_file import halves, read_config, write_gguf
from inference.compact.config.shape import read_shape
from inference.compact.grouped import Grouped, dense
from inference.compact.load.checkpoint import Checkpoint, open_source
from inference.compact.load.gguf_blocks import BLOCKS
from inference.compact.load.placement import choose_placement
from inference.compact.load.weights import load_weights
from inference.compact.options import CompactOptions
from inference.errors import ModelError
from tests.inference.compact.native.model import eager_logits
from tests.inference.compact.shapes import SHAPES
from tests.inference.compact.tiny import prompt_of, save_model

Kind = GGMLQuantizationType
FOUR_BITS = (Kind.Q4_0, Kind.Q4_1, Kind.Q4_K)
EIGHT_BITS = (Kind.Q8_0, Kind.Q5_0, Kind.Q5_1, Kind.Q5_K, Kind.Q6_K)
PLAIN = (Kind.F32, Kind.F16, Kind.BF16)
OPTIONS = CompactOptions(device="cpu", dtype="float32", kernels="torch", kv_blocks=4)
ROWS, WIDTH = 24, 512
SIZES = {"hidden_size": 64, "intermediate_size": 96}


def _tensors(folder: Path) -> list[tuple[str, Any]]:
    stored = load_file(folder / "model.safetensors")
    return [(name, values.float().numpy()) for name, values in stored.items()]


def _convert(folder: Path, kind: Any = halves) -> Path:
    """In place of the folder's safetensors."""
    path = folder / "model-tiny.gguf"
    write_gguf(path, read_config(folder), _tensors(folder), kind)
    (folder / "model.safetensors").unlink()
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tmp_path)
    return tmp_path


def _blocks(kind: Kind) -> bytes:
    """Random bits, but with halves that are numbers of a usual size where scales are."""
    values, size = GGML_QUANT_SIZES[kind]
    draw = random.Random(kind.name)
    halves_at = {Kind.Q4_K: (0, 2), Kind.Q5_K: (0, 2), Kind.Q4_1: (0, 2), Kind.Q5_1: (0, 2)}
    made = bytearray(draw.randbytes(ROWS * WIDTH // values * size))
    for start in range(0, len(made), size):
        for at in halves_at.get(kind, (208,) if kind is Kind.Q6_K else (0,)):
            struct.pack_into("<e", made, start + at, draw.uniform(-0.1, 0.1))
    return bytes(made)


@pytest.mark.parametrize("kind", [*FOUR_BITS, *EIGHT_BITS], ids=lambda kind: kind.name)
def test_blocks_hold_what_the_reference_reads(kind: Kind) -> None:
    data = _blocks(kind)
    weight = BLOCKS[kind].weight(
        torch.frombuffer(bytearray(data), dtype=torch.uint8), (ROWS, WIDTH)
    )
    stored = np.frombuffer(data, dtype=np.uint8).reshape(ROWS, -1)
    expected = torch.from_numpy(dequantize(stored, kind))
    assert isinstance(weight, Grouped)
    assert (weight.bits, weight.group) == (4 if kind in FOUR_BITS else 8, 32)
    assert weight.shape == (ROWS, WIDTH)
    if kind is Kind.Q6_K:
        assert float((weight.dense() - expected).norm() / expected.norm()) < 0.01
    else:
        torch.testing.assert_close(weight.dense(), expected, rtol=1e-6, atol=1e-6)


def test_the_sizes_of_blocks_are_those_of_the_format() -> None:
    assert {Kind(number): each[:2] for number, each in BLOCKS.items()} == {
        kind: GGML_QUANT_SIZES[kind] for kind in (*PLAIN, *FOUR_BITS, *EIGHT_BITS)
    }


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.name)
def test_plain_values(folder: Path, kind: Kind) -> None:
    before = dict(_tensors(folder))
    _convert(folder, lambda _, size: kind if len(size) > 1 else Kind.F32)
    shape = read_shape(folder)
    weights = load_weights(folder, shape, choose_placement(shape, OPTIONS))
    exact = {"rtol": 0, "atol": 0} if kind is Kind.F32 else {"rtol": 1e-2, "atol": 1e-2}
    found = dense(weights.layers[1].qkv.weight)[:64]
    name = "model.layers.1.self_attn.q_proj.weight"
    torch.testing.assert_close(found, torch.from_numpy(before[name]), **exact)


@pytest.mark.parametrize(
    "name", ["llama", "llama-tied", "llama-biased", "mistral", "qwen2", "qwen3"]
)
def test_logits_are_those_of_the_same_safetensors(tmp_path: Path, name: str) -> None:
    kind, overrides = SHAPES[name]
    save_model(tmp_path, kind, **overrides)
    tokens = prompt_of(40)
    expected = eager_logits(tmp_path, tokens)
    _convert(tmp_path, lambda _, size: Kind.F32)
    torch.testing.assert_close(eager_logits(tmp_path, tokens), expected, rtol=0, atol=0)


def _mixed(name: str, size: tuple[int, ...]) -> Kind:
    """As Q4_K_M has it: some projections in more bits than those that they are fused with."""
    if len(size) == 1:
        return Kind.F32
    if "attn_v" in name or "token_embd" in name:
        return Kind.Q8_0
    return Kind.Q5_1 if "ffn_down" in name else Kind.Q4_0


def test_fused_projections_have_the_most_bits_of_any(folder: Path) -> None:
    path = _convert(folder, _mixed)
    shape = read_shape(folder)
    checkpoint = Checkpoint(open_source(folder, shape), torch.float32, "cpu", dense=False)
    prefix = "model.layers.0.self_attn."
    rows = {f"{prefix}q_proj": 64, f"{prefix}k_proj": 32, f"{prefix}v_proj": 32}
    qkv = checkpoint.affine(rows, 64, biased=False).weight
    gate_up = checkpoint.affine(
        {f"model.layers.0.mlp.{name}_proj": 96 for name in ("gate", "up")}, 64, biased=False
    ).weight
    assert isinstance(qkv, Grouped) and isinstance(gate_up, Grouped)
    assert (qkv.bits, qkv.shape) == (8, (128, 64))
    assert (gate_up.bits, gate_up.shape) == (4, (192, 64))
    stored = {
        each.name: dequantize(each.data, each.tensor_type) for each in GGUFReader(path).tensors
    }
    values = torch.from_numpy(stored["blk.0.attn_v.weight"])
    torch.testing.assert_close(qkv.dense()[96:], values, rtol=1e-6, atol=1e-6)
    both = np.concatenate([stored[f"blk.0.ffn_{name}.weight"] for name in ("gate", "up")])
    torch.testing.assert_close(gate_up.dense(), torch.from_numpy(both), rtol=1e-6, atol=1e-6)


def test_torch_computes_with_quantized_weights(folder: Path) -> None:
    tokens = prompt_of(40)
    exact = eager_logits(folder, tokens)
    _convert(folder, lambda _, size: Kind.Q8_0 if len(size) > 1 else Kind.F32)
    found = eager_logits(folder, tokens)
    assert _cosine(found, exact) > 0.99


def _cosine(one: Tensor, other: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), dim=0))


def test_frequencies_that_files_carry_are_no_complaint(folder: Path) -> None:
    _rewrite(folder, lambda writer: writer.add_tensor("rope_freqs.weight", np.ones(8, np.float32)))
    _load(folder)


def _rewrite(folder: Path, add: Callable[[GGUFWriter], None]) -> None:
    """The file again, with something more."""
    original = GGUFWriter.write_header_to_file

    def write(writer: GGUFWriter, path: Path | None = None) -> None:
        add(writer)
        original(writer, path)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(GGUFWriter, "write_header_to_file", write)
        _convert(folder)


def _load(folder: Path) -> None:
    shape = read_shape(folder)
    load_weights(folder, shape, choose_placement(shape, OPTIONS))


def test_unknown_tensors_are_refused(folder: Path) -> None:
    _rewrite(
        folder, lambda writer: writer.add_tensor("blk.0.attn_sinks.weight", np.ones(8, np.float32))
    )
    with pytest.raises(ModelError, match=r"tiny\.gguf: blk\.0\.attn_sinks\.weight: is not part of"):
        _load(folder)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"architectures": ["Qwen2ForCausalLM"]}, r"general\.architecture: 'llama' with Qwen2"),
        ({"num_hidden_layers": 4}, r"tiny\.gguf: no weights for|no weights for model\.layers\.3"),
        ({"intermediate_size": 128}, r"gate_proj\.weight: is \(96, 64\), must be \(128, 64\)"),
    ],
)
def test_what_does_not_fit_the_configuration(
    folder: Path, change: dict[str, Any], named: str
) -> None:
    _convert(folder)
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **change}))
    with pytest.raises(ModelError, match=named):
        _load(folder)


def test_one_file_only(folder: Path) -> None:
    path = _convert(folder)
    (folder / "another.gguf").write_bytes(path.read_bytes())
    with pytest.raises(ModelError, match="2 GGUF files"):
        _load(folder)


def test_types_that_are_not_supported_are_refused(folder: Path) -> None:
    path = _convert(folder)
    data = bytearray(path.read_bytes())
    at = data.index(b"blk.0.ffn_up.weight") + len("blk.0.ffn_up.weight") + 4 + 16
    struct.pack_into("<I", data, at, Kind.IQ2_XS)
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"blk\.0\.ffn_up\.weight: values of type 17"):
        _load(folder)


def test_values_must_be_finite(folder: Path) -> None:
    path = _convert(folder, lambda _, size: Kind.Q8_0 if len(size) > 1 else Kind.F32)
    tensors = {each.name: each for each in GGUFReader(path).tensors}
    data = bytearray(path.read_bytes())
    struct.pack_into("<e", data, int(tensors["blk.1.ffn_up.weight"].data_offset), float("inf"))
    path.write_bytes(data)
    shape = read_shape(folder)
    for dequantized in (True, False):
        source = open_source(folder, shape)
        checkpoint = Checkpoint(source, torch.float32, "cpu", dense=dequantized)
        with pytest.raises(ModelError, match=r"1\.mlp\.up_proj\.weight: holds values"):
            checkpoint.matrix("model.layers.1.mlp.up_proj.weight", 96, 64)


def test_no_damage_is_more_than_a_complaint(folder: Path) -> None:
    path = _convert(folder, _mixed)
    data = path.read_bytes()
    header = data.index(b"blk.2.ffn_norm.weight") + 60
    draw = random.Random(5)
    refused = 0
    for number in range(150):
        broken = bytearray(data)
        for _ in range(draw.randint(1, 3)):
            broken[draw.randrange(header)] = draw.randrange(256)
        if number % 3 == 0:
            del broken[draw.randrange(len(broken)) :]
        path.write_bytes(broken)
        try:
            _load(folder)
        except ModelError as error:
            assert str(path) in str(error) or str(folder) in str(error)
            refused += 1
    assert refused > 75
