"""Products with quantized weights: whole numbers inside, so that only their scales are rounded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from inference.compact.config.shape import read_shape
from inference.compact.grouped import Grouped, dense
from inference.compact.load.checkpoint import Affine
from inference.compact.load.placement import choose_placement
from inference.compact.load.rounding import quantized
from inference.compact.load.weights import LayerWeights, Weights
from inference.compact.native.build import InstructionSet
from inference.compact.options import CompactOptions
from inference.errors import ModelError
from tests.inference.compact.native.model import (
    BLOCK,
    all_logits,
    native_of,
    save_rounded,
    tried_sets,
)
from tests.inference.compact.shapes import SHAPES
from tests.inference.compact.tiny import prompt_of
from tests.support.shipped import SHIPPED

pytestmark = pytest.mark.processes  # A compiler.
HIDDEN = 256
# The last panel of 32 outputs is not full.
VOCABULARY = 333
SIZES: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": HIDDEN, "initializer_range": 0.1}
PROJECTIONS = ("qkv", "out", "gate_up", "down")
TOKENS = prompt_of(90)
BLOCKS = [9, 4, 30]
ODD_CUTS = [1, 7, 31, 33, 1, 1, 2, 14]
# Of the norm of all logits: scales in half precision, and ties between codes. Seen: 0.05 %, and
# 0.6 % without rounding the rows.
TOLERANCE = 0.001
# Of a row's norm, in the middle row: activations in int8, three layers deep. Seen: 4.5 %.
TOLERANCE_DEEP = 0.08
# Of a row's norm for weights of 4 bits, in the middle row of a model that nobody trained.
TOLERANCE_ROUNDED = 0.6


@pytest.fixture(params=tried_sets(), ids=lambda each: each.name)
def isa(request: pytest.FixtureRequest) -> InstructionSet:
    """Each instruction set that can be tried here."""
    found: InstructionSet = request.param
    return found


def _random(bits: int, group: int, *, centred: bool, outputs: int = VOCABULARY) -> Grouped:
    generator = torch.Generator().manual_seed(group + bits)
    codes = torch.randint(
        2**bits, (outputs, HIDDEN * bits // 8), dtype=torch.uint8, generator=generator
    )
    scales = torch.randn(outputs, HIDDEN // group, generator=generator) / 100
    least = scales * -(2 ** (bits - 1))
    if centred:
        least += torch.randn(least.shape, generator=generator) / 50
    return Grouped(codes, scales, least, bits)


def _logits(
    folder: Path, isa: InstructionSet, cuts: list[int], change: Callable[[Weights], Weights]
) -> Tensor:
    native = native_of(folder, isa, change)
    try:
        return all_logits(native, TOKENS, BLOCKS, cuts)
    finally:
        native.close()


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_product(
    bits: int, group: int, centred: bool, tmp_path: Path, isa: InstructionSet
) -> None:
    """A head of ones tells what the rows are; what int8 makes of those is reckoned here."""
    save_rounded(tmp_path, **SIZES)
    ones = torch.eye(VOCABULARY, HIDDEN).bfloat16()
    rows = _logits(tmp_path, isa, [90], lambda weights: replace(weights, head=ones))
    parts = rows[:, :HIDDEN].view(len(rows), -1, 32)
    greatest = parts.abs().amax(-1, keepdim=True)
    # In double precision where two codes are equally near, as the C code does it.
    codes = (parts.double() * (127 / greatest).double()).round()
    coarse = (codes * greatest / 127).view(len(rows), HIDDEN)
    head = _random(bits, group, centred=centred)
    expected = coarse @ head.dense().double().T

    def change(weights: Weights) -> Weights:
        return replace(weights, head=head)

    found = _logits(tmp_path, isa, [90], change)
    assert (found - expected).norm() < TOLERANCE * expected.norm()
    assert torch.equal(_logits(tmp_path, isa, ODD_CUTS, change), found)


def _changed(weights: Weights, make: Callable[[Tensor], Tensor | Grouped]) -> Weights:
    def layer(each: LayerWeights) -> LayerWeights:
        old: dict[str, Affine] = {name: getattr(each, name) for name in PROJECTIONS}
        new: dict[str, Any] = {
            name: Affine(make(dense(one.weight)), one.bias) for name, one in old.items()
        }
        return replace(each, **new)

    return replace(weights, layers=[layer(each) for each in weights.layers])


@pytest.mark.parametrize("bits", [4, 8])
def test_all_layers(bits: int, tmp_path: Path, isa: InstructionSet) -> None:
    """Gates and ups, biases, outputs that are added to what is there."""
    kind, overrides = SHAPES["llama-biased"]
    save_rounded(tmp_path, kind, **{**SIZES, **overrides, "intermediate_size": 128})

    def coarse(weights: Weights) -> Weights:
        return _changed(weights, lambda each: quantized(each, bits))

    def dense(weights: Weights) -> Weights:
        return _changed(weights, lambda each: quantized(each, bits).dense().bfloat16())

    found, expected = (_logits(tmp_path, isa, [90], change) for change in (coarse, dense))
    differences = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert differences.median() < TOLERANCE_DEEP
    assert torch.equal(_logits(tmp_path, isa, ODD_CUTS, coarse), found)


def test_a_row_that_is_not_finite_says_so(tmp_path: Path, isa: InstructionSet) -> None:
    save_rounded(tmp_path, **SIZES)
    head = _random(4, 32, centred=False)

    def broken(weights: Weights) -> Weights:
        weights.embedding[TOKENS[-1]] = torch.nan
        return replace(weights, head=head)

    found = _logits(tmp_path, isa, [90], broken)
    first = TOKENS.index(TOKENS[-1])
    assert found[: first // BLOCK * BLOCK].isfinite().all()
    assert found[first].isnan().all()


@pytest.mark.parametrize(("bits", "loss"), [(4, 0.1), (8, 0.007)])
def test_rounding(bits: int, loss: float) -> None:
    """Seen: 8.5 % and 0.6 % of the norm of normal weights; zeros stay what they are."""
    weight = torch.randn(64, 128, generator=torch.Generator().manual_seed(0))
    weight[3] = 0
    made = quantized(weight, bits)
    assert (made.shape, made.group, made.bits) == ((64, 128), 32, bits)
    assert torch.equal(made.dense()[3], weight[3])
    assert (made.dense() - weight).norm() < loss * weight.norm()


@pytest.mark.parametrize(("quantize", "widths", "share"), [("int8", 8, 0.6), ("int4", 4, 0.45)])
def test_rounding_what_is_read(quantize: str, widths: int, share: float, tmp_path: Path) -> None:
    """Inputs of 48 make no whole groups, so that one projection stays as it is."""
    save_rounded(tmp_path, **{**SIZES, "intermediate_size": 48})
    full = native_of(tmp_path)
    native = native_of(tmp_path, quantize=quantize)
    assert native.packer.bits == {widths, 8}
    assert native.packer.weight_bytes < share * full.packer.weight_bytes
    found, expected = (all_logits(each, TOKENS, BLOCKS, [90]) for each in (native, full))
    differences = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert differences.median() < 4 / widths * TOLERANCE_ROUNDED
    full.close()
    native.close()


def test_the_shipped_model_says_nearly_the_same() -> None:
    """Likeliest tokens and logits of 90 random ones. Seen: 98 and 79 % alike, 1.6 and 12 % off."""
    tokens = torch.randint(6, 4096, (90,), generator=torch.Generator().manual_seed(0)).tolist()
    full = native_of(SHIPPED)
    expected = all_logits(full, tokens, BLOCKS, [90])
    full.close()
    for quantize, alike, tolerance in (("int8", 0.9, 0.03), ("int4", 0.65, 0.2)):
        native = native_of(SHIPPED, quantize=quantize)
        found = all_logits(native, tokens, BLOCKS, [90])
        native.close()
        assert (found.argmax(-1) == expected.argmax(-1)).float().mean() > alike
        assert (found - expected).norm() < tolerance * expected.norm()


def test_torch_cannot_be_asked_for_it() -> None:
    shape = read_shape(SHIPPED)
    options = CompactOptions(device="cpu", kernels="torch", quantize="int4")
    with pytest.raises(
        ModelError, match="^quantize: int4 needs native code: no native code: torch"
    ):
        choose_placement(shape, options)
    with pytest.raises(ValueError, match="^quantize: 'int2' is not one of off, int8, int4"):
        CompactOptions(quantize="int2")
