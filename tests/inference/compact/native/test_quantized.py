"""Products with quantized weights: whole numbers inside, so that only their scales are rounded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from inference.compact.load.checkpoint import Affine
from inference.compact.load.grouped import Grouped, dense
from inference.compact.load.rounding import quantized
from inference.compact.load.weights import LayerWeights, Weights
from inference.compact.native.build import InstructionSet
from tests.inference.compact.native.model import all_logits, native_of, save_rounded, tried_sets
from tests.inference.compact.shapes import SHAPES
from tests.inference.compact.tiny import prompt_of

pytestmark = pytest.mark.processes  # A compiler.
HIDDEN = 256
# The last panel of 32 outputs is not full.
VOCABULARY = 333
SIZES = {"vocab_size": VOCABULARY, "hidden_size": HIDDEN, "initializer_range": 0.1}
TOKENS = prompt_of(90)
BLOCKS = [9, 4, 30]
ODD_CUTS = [1, 7, 31, 33, 1, 1, 2, 14]
# Of the norm of all logits: scales in half precision. Seen: 0.02 %.
TOLERANCE = 0.0005
# Of a row's norm, in the middle row: activations in int8, three layers deep. Seen: 4.5 %.
TOLERANCE_DEEP = 0.08


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
    steps = parts.abs().amax(-1, keepdim=True) / 127
    coarse = ((parts / steps).round() * steps).view(len(rows), HIDDEN)
    head = _random(bits, group, centred=centred)
    expected = coarse.double() @ head.dense().double().T

    def change(weights: Weights) -> Weights:
        return replace(weights, head=head)

    found = _logits(tmp_path, isa, [90], change)
    assert (found - expected).norm() < TOLERANCE * expected.norm()
    assert torch.equal(_logits(tmp_path, isa, ODD_CUTS, change), found)


def _changed(weights: Weights, make: Callable[[Tensor], Tensor | Grouped]) -> Weights:
    def layer(each: LayerWeights) -> LayerWeights:
        old = {name: getattr(each, name) for name in ("qkv", "out", "gate_up", "down")}
        return replace(
            each, **{n: Affine(make(dense(one.weight)), one.bias) for n, one in old.items()}
        )

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
        weights.embedding[TOKENS[40]] = torch.nan
        return replace(weights, head=head)

    found = _logits(tmp_path, isa, [90], broken)
    for token, row in zip(TOKENS, found, strict=True):
        assert bool(row.isnan().all()) == (token == TOKENS[40])


@pytest.mark.parametrize(("bits", "loss"), [(4, 0.1), (8, 0.007)])
def test_rounding(bits: int, loss: float) -> None:
    """Seen: 8.5 % and 0.6 % of the norm of normal weights; zeros stay what they are."""
    weight = torch.randn(64, 128, generator=torch.Generator().manual_seed(0))
    weight[3] = 0
    made = quantized(weight, bits)
    assert (made.shape, made.group, made.bits) == ((64, 128), 32, bits)
    assert torch.equal(made.dense()[3], weight[3])
    assert (made.dense() - weight).norm() < loss * weight.norm()
