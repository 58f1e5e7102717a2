"""What a GPU takes for each part of a step without extra packages. Left out where none is."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from inference.compact.attention.kernels import choose_kernels
from inference.compact.config.shape import read_shape
from inference.compact.layers.ops import PLAIN, choose_ops
from inference.compact.load.placement import Placement
from inference.compact.sampling.sampler import choose_draw
from tests.inference.compact.shapes import SHAPES
from tests.inference.compact.tiny import save_model

WIDE: dict[str, Any] = {"hidden_size": 512, "head_dim": 128}


@pytest.mark.parametrize(
    ("dtype", "prefill"), [("float32", "prefill_paged"), ("bfloat16", "prefill_torch_flash")]
)
@pytest.mark.parametrize(
    ("name", "sizes"), [("llama", {}), ("llama", WIDE), ("qwen3-window", {}), ("mixtral", WIDE)]
)
def test_the_fastest_of_each_passes_its_trial(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    sizes: dict[str, Any],
    dtype: str,
    prefill: str,
) -> None:
    kind, overrides = SHAPES[name]
    save_model(tmp_path, kind, **{**overrides, **sizes})
    shape = read_shape(tmp_path)
    placement = Placement(device="cuda", dtype=dtype, block_size=32, kv_blocks=1, threads=None)
    with caplog.at_level(logging.WARNING, "inference.compact"):
        chosen = choose_kernels(shape, placement)
        between = choose_ops(shape, placement)
        assert choose_draw("cuda") is not None
    assert (chosen.decode.__name__, chosen.prefill.__name__) == ("decode_paged", prefill)
    assert chosen.together is not None and chosen.together.__name__ == "attend_together"
    assert between is not PLAIN
    assert caplog.text == ""
