"""Weights in oneDNN's order compute what plain ones do; where they cannot be, plain ones serve."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import linear

from inference.compact.config.shape import ModelShape, read_shape
from inference.compact.layers.packed import pack
from inference.compact.layers.project import choose_pack, packed, project
from inference.compact.load.checkpoint import Affine
from inference.compact.load.placement import Placement, choose_placement
from inference.compact.load.weights import load_weights
from inference.compact.options import CompactOptions
from tests.inference.compact.tiny import save_model

OPTIONS = CompactOptions(device="cpu", kernels="torch", dtype="float32", kv_blocks=8)


def _model(folder: Path) -> tuple[ModelShape, Placement]:
    save_model(folder)
    shape = read_shape(folder)
    return shape, choose_placement(shape, OPTIONS)


def _half(affine: Affine) -> Affine:
    weight, bias = affine.plain()
    return Affine(weight / 2, bias)


@pytest.mark.parametrize("rows", [1, 7, 300])
@pytest.mark.parametrize("biased", [True, False])
def test_the_same_products(rows: int, biased: bool) -> None:
    random = torch.Generator().manual_seed(2)
    weight, x = (torch.randn(count, 48, generator=random) for count in (80, rows))
    bias = torch.randn(80, generator=random) if biased else None
    found = project(x, pack(Affine(weight, bias)))
    torch.testing.assert_close(found, linear(x, weight, bias), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["inference.compact.layers.absent", __name__])
def test_what_is_absent_or_wrong_is_not_used(tmp_path: Path, name: str) -> None:
    shape, placement = _model(tmp_path)
    candidates = ((name, "_half"),)
    assert choose_pack(shape, placement, candidates) is None
    weights = load_weights(tmp_path, shape, placement)
    assert packed(weights, shape, placement, candidates) is weights
