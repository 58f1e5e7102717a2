"""I7: fast attention is used where it runs, key heads are shared, and doing without is seen."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from inference.compact.attention.blockwise import decode_products, prefill_blockwise
from inference.compact.attention.cache import KvCache
from inference.compact.attention.fused import decode_fused, prefill_fused
from inference.compact.attention.kernels import Trial, best_of
from inference.compact.config.shape import read_shape
from inference.compact.load.placement import Placement
from tests.inference.compact.tiny import save_model

CPU = Placement(device="cpu", dtype="float32", block_size=32, kv_blocks=4, threads=None)
DECODES = [(decode_products.__module__, decode_products.__name__)]
PREFILLS = [(prefill_blockwise.__module__, prefill_blockwise.__name__)]
MISSING = [("inference.compact.attention.not_installed", "attend")]


def test_what_is_installed_and_right_is_used_silently(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_model(tmp_path)
    with caplog.at_level(logging.WARNING):
        found = best_of(DECODES, PREFILLS, Trial(read_shape(tmp_path), CPU))
    assert (found.decode, found.prefill) == (decode_products, prefill_blockwise)
    assert caplog.records == []


def test_doing_without_is_one_visible_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_model(tmp_path)
    found = best_of(MISSING, MISSING, Trial(read_shape(tmp_path), CPU))
    assert (found.decode, found.prefill) == (decode_fused, prefill_fused)
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "slower" in warning.getMessage()


def test_the_cache_holds_shared_key_heads_once(tmp_path: Path) -> None:
    save_model(tmp_path, num_attention_heads=4, num_key_value_heads=1)
    # Layers, blocks and a spare one, tokens, key and value, heads, width.
    assert KvCache(read_shape(tmp_path), CPU).blocks.shape == (3, 4 + 1, 32, 2, 1, 16)
