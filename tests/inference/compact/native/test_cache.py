"""Keys and values in int8: near what bfloat16 gives, and the same bit for bit however computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inference.compact.config.shape import read_shape
from inference.compact.load.placement import CPU_KV_BYTES, choose_placement, layer_token_bytes
from inference.compact.load.weights import Weights
from inference.compact.native.build import InstructionSet
from inference.compact.options import CompactOptions
from inference.compact.run.path import compute_path
from inference.compact.run.roofline import Work
from inference.compact.schedule.scheduler import Chunk
from inference.errors import ModelError
from tests.inference.compact.native.model import (
    BLOCK,
    all_logits,
    native_of,
    save_rounded,
    sequence_of,
    tried_sets,
)
from tests.inference.compact.shapes import SHAPES
from tests.inference.compact.tiny import prompt_of
from tests.support.shipped import SHIPPED

pytestmark = pytest.mark.processes  # A compiler.
TOKENS = prompt_of(90)
BLOCKS = [9, 4, 30]
ODD_CUTS = ([1, 7, 31, 33, 1, 1, 2, 14], [12, 13, 11, 5, 6, 8, 9, 10, 4, 3, 2, 7], [32, 32, 26])
# Of a row's norm, in the middle row.
TOLERANCE = 0.03
TOLERANCE_SHIPPED = 0.01
# Bits of a NaN in bfloat16, and as codes 127 and -64.
GARBAGE = 0x7FC0


@pytest.fixture(params=tried_sets(), ids=lambda each: each.name)
def isa(request: pytest.FixtureRequest) -> InstructionSet:
    """Each instruction set that can be tried here."""
    found: InstructionSet = request.param
    return found


def _difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float(((found - expected).norm(dim=-1) / expected.norm(dim=-1)).median())


@pytest.mark.parametrize(
    "name", ["llama", "llama-biased", "llama-no-groups", "qwen3-window", "head_dim 80"]
)
def test_any_chunks_say_nearly_the_same(name: str, tmp_path: Path, isa: InstructionSet) -> None:
    """Whatever the cache held before."""
    kind, overrides = SHAPES.get(name, ("llama", {"head_dim": 80, "num_key_value_heads": 1}))
    save_rounded(tmp_path, kind, **{**overrides, "initializer_range": 0.1})
    full, native = native_of(tmp_path, isa), native_of(tmp_path, isa, kv_dtype="int8")
    expected = all_logits(full, TOKENS, BLOCKS, [90])
    native.cache.fill_(GARBAGE)
    found = all_logits(native, TOKENS, BLOCKS, [90])
    assert 0 < _difference(found, expected) < TOLERANCE
    for cuts in ODD_CUTS:
        native.cache.fill_(GARBAGE)
        assert torch.equal(all_logits(native, TOKENS, [1, 2, 3], cuts), found)
    full.close()
    native.close()


def test_blocks_are_shared_and_others_left_alone(tmp_path: Path, isa: InstructionSet) -> None:
    save_rounded(tmp_path)
    native = native_of(tmp_path, isa, kv_blocks=8, kv_dtype="int8")
    tokens = TOKENS[:84]
    alone = all_logits(native, tokens, [5, 6, 7], [84])
    native.cache.fill_(GARBAGE)
    first, second = sequence_of(tokens, [0, 1, 2]), sequence_of(tokens, [0, 1, 3])
    found = native.forward([Chunk(first, 0, 84, 1), Chunk(second, 64, 20, 20)])
    assert torch.equal(found[0], alone[83])
    assert torch.equal(found[1:], alone[64:])
    assert (native.cache[:, :4] != GARBAGE).any(-1).all()
    assert (native.cache[:, 4:] == GARBAGE).all()
    native.close()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_row_that_is_not_finite_stays_so(
    value: float, tmp_path: Path, isa: InstructionSet
) -> None:
    save_rounded(tmp_path)
    place = 40
    tokens = [each if each != TOKENS[place] else 4 for each in TOKENS]
    tokens[place] = TOKENS[place]

    def broken(weights: Weights) -> Weights:
        weights.embedding[tokens[place]] = value
        return weights

    native = native_of(tmp_path, isa, broken, kv_dtype="int8")
    found = all_logits(native, tokens, BLOCKS, [30, 20, 1, 39])
    assert found[:place].isfinite().all()
    assert found[place:].isnan().all()
    scales = native.cache[:, BLOCKS[place // BLOCK], :, -2 * BLOCK :].view(torch.bfloat16)
    (bad,) = scales.isnan().all(0).all(0).nonzero(as_tuple=True)
    assert bad.tolist() == [place % BLOCK, BLOCK + place % BLOCK]
    native.close()


def test_it_takes_about_half_the_bytes() -> None:
    shape = replace(read_shape(SHIPPED), head_dim=64)
    made = {}
    for kv_dtype in ("auto", "int8"):
        options = CompactOptions(device="cpu", kv_dtype=kv_dtype, kernels="native")
        placement = choose_placement(shape, options)
        token = layer_token_bytes(shape, placement.dtype, kv_dtype)
        read = Work(shape, cached_bytes=token)
        made[kv_dtype] = (placement.kv_blocks, read.step_bytes([1100]) - read.weight_bytes)
        assert 0 <= CPU_KV_BYTES - placement.kv_blocks * shape.layers * BLOCK * token < 10**5
    assert made["int8"][0] / made["auto"][0] == pytest.approx(128 / 66, rel=0.001)
    assert made["auto"][1] / made["int8"][1] == pytest.approx(128 / 66)


def test_the_shipped_model_says_nearly_the_same() -> None:
    tokens = torch.randint(6, 4096, (400,), generator=torch.Generator().manual_seed(0)).tolist()
    blocks = list(range(20, 33))
    full, native = native_of(SHIPPED), native_of(SHIPPED, kv_dtype="int8")
    expected = all_logits(full, tokens, blocks, [400])
    found = all_logits(native, tokens, blocks, [300, 99, 1])
    assert _difference(found, expected) < TOLERANCE_SHIPPED
    assert (found.argmax(-1) == expected.argmax(-1)).float().mean() > 0.95
    assert native.cache.nbytes < 0.54 * full.cache.nbytes
    options = CompactOptions(device="cpu", kv_dtype="int8")
    placement = choose_placement(read_shape(SHIPPED), options)
    assert compute_path(native, placement).kernels.endswith(", int8 cache")
    full.close()
    native.close()


def test_torch_cannot_be_asked_for_it() -> None:
    options = CompactOptions(device="cpu", kernels="torch", kv_dtype="int8")
    with pytest.raises(ModelError, match="^kv_dtype: int8 needs native code: no native code"):
        choose_placement(read_shape(SHIPPED), options)
    with pytest.raises(ValueError, match="^kv_dtype: 'int4' is not one of auto, int8"):
        CompactOptions(kv_dtype="int4")
