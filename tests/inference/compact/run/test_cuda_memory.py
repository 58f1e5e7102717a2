"""The KV cache of a real GPU: its size from what is free, and steps that then fit."""

from __future__ import annotations

from pathlib import Path

import torch

from inference.compact.config.shape import read_shape
from inference.compact.load.placement import choose_placement, defaults_for
from inference.compact.options import GPU_DEFAULTS, CompactOptions
from inference.compact.run.runner import Runner
from tests.inference.compact.tiny import save_model

SHARE = 0.2


def test_no_more_than_its_share_is_in_use(tmp_path: Path) -> None:
    assert defaults_for({}) == defaults_for({"device": "cuda"}) == GPU_DEFAULTS
    save_model(tmp_path)
    shape = read_shape(tmp_path)
    placement = choose_placement(shape, CompactOptions(device="cuda", gpu_memory=SHARE))
    assert placement.kv_room is not None
    runner = Runner.load(tmp_path, shape, placement)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    assert runner.placement.kv_blocks > 1
    # The rest is for the recordings and what libraries keep.
    assert SHARE - 0.1 < (total - free) / total < SHARE + 0.05
