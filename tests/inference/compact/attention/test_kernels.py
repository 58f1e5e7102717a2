"""Attention code is used where it is installed, runs and agrees; otherwise torch's own is."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inference.compact.attention import kernels
from inference.compact.attention.blockwise import decode_products, prefill_blockwise
from inference.compact.attention.cache import KvCache
from inference.compact.attention.kernels import ON_CPU, Trial, choose_kernels
from inference.compact.batch.tensors import AttentionPlan, DecodeGroup, PrefillSpan
from inference.compact.candidates import first_that_agrees
from inference.compact.config.shape import ModelShape, read_shape
from inference.compact.load.placement import Placement
from inference.compact.run.eager import EagerModel
from tests.inference.compact.attention.together import attend_by_definition
from tests.inference.compact.shapes import SHAPES
from tests.inference.compact.tiny import (
    Harness,
    continuation,
    job_of,
    prompt_of,
    save_model,
    tokens_of,
)

HERE = __name__
CPU = Placement(device="cpu", dtype="float32", block_size=32, kv_blocks=4, threads=None)


@pytest.fixture(scope="module")
def shape(tmp_path_factory: pytest.TempPathFactory) -> ModelShape:
    folder = tmp_path_factory.mktemp("kernels")
    save_model(folder)
    return read_shape(folder)


@pytest.fixture(scope="module")
def trial(shape: ModelShape) -> Trial:
    return Trial(shape, CPU)


def sees_too_much(
    queries: torch.Tensor, cache: KvCache, layer: int, group: DecodeGroup
) -> torch.Tensor:
    """Takes every gathered key, whatever the row's length."""
    open_to_all = replace(group, mask=torch.zeros_like(group.added))
    return decode_products(queries, cache, layer, open_to_all)


def forgets_the_window(
    queries: torch.Tensor, cache: KvCache, layer: int, span: PrefillSpan
) -> torch.Tensor:
    """Right for all layers without a window."""
    return prefill_blockwise(queries, cache, layer, replace(span, window=None))


def breaks(queries: torch.Tensor, cache: KvCache, layer: int, group: DecodeGroup) -> torch.Tensor:
    """As a kernel that does not compile on this chip."""
    raise RuntimeError("no kernel image is available")


def sees_another_table(
    queries: torch.Tensor, cache: KvCache, layer: int, plan: AttentionPlan
) -> torch.Tensor:
    """Right where there is one span only."""
    assert plan.spans is not None
    swapped = replace(plan.spans, table=plan.spans.table.flip(0))
    return attend_by_definition(queries, cache, layer, replace(plan, spans=swapped))


def test_right_kernels_pass_in_both_precisions(shape: ModelShape) -> None:
    for dtype, block_size in (("float32", 32), ("bfloat16", 16), ("float32", 128)):
        trial = Trial(shape, replace(CPU, dtype=dtype, block_size=block_size))
        assert trial.decodes(decode_products)
        assert trial.prefills(prefill_blockwise)
        assert trial.together(attend_by_definition)


def test_wrong_kernels_do_not_pass(trial: Trial) -> None:
    assert not trial.decodes(sees_too_much)
    assert not trial.prefills(forgets_the_window)
    assert not trial.together(sees_another_table)


@pytest.mark.parametrize(
    ("candidate", "said"),
    [
        ((HERE, "sees_too_much"), "computes something else"),
        ((HERE, "breaks"), "no kernel image is available"),
        (("inference.compact.attention.nowhere", "decode_best"), "cannot be used"),
    ],
)
def test_the_next_candidate_is_taken(
    trial: Trial, caplog: pytest.LogCaptureFixture, candidate: tuple[str, str], said: str
) -> None:
    right = (decode_products.__module__, decode_products.__name__)
    with caplog.at_level(logging.INFO, "inference.compact"):
        assert first_that_agrees([candidate, right], trial.decodes) is decode_products
        assert first_that_agrees([candidate], trial.decodes) is None
    assert said in caplog.text


def test_a_cpu_takes_plain_products(shape: ModelShape) -> None:
    assert choose_kernels(shape, CPU) is ON_CPU


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_device_falls_to_the_floor(
    shape: ModelShape, device: str, dtype: str, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = choose_kernels(shape, replace(CPU, device=device, dtype=dtype))
    assert (chosen.decode_masks, chosen.prefill_masks) == (device == "cpu", False)
    assert [record.message for record in caplog.records] == []


def test_the_floor_is_a_warning_and_gets_its_masks(
    shape: ModelShape, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere: list[tuple[str, str]] = [("inference.compact.attention.nowhere", "best")]
    found = kernels.best_of(nowhere, nowhere, Trial(shape, CPU))
    assert (found.decode_masks, found.prefill_masks) == (True, True)
    assert [record.levelname for record in caplog.records].count("WARNING") == 2
    assert "decode and prefill attend by torch's own kernels" in caplog.text
    assert "several prompts attend in turn" in caplog.text


@pytest.mark.parametrize("name", ["llama", "qwen2-window"])
def test_several_prompts_of_a_step_attend_together(tmp_path: Path, name: str) -> None:
    """Behind prefixes, beside decoding rows, in chunks; a single one does so by itself."""
    kind, overrides = SHAPES[name]
    oracle = save_model(tmp_path, kind, **overrides)
    size = {"kernels": "torch", "kv_blocks": 80, "block_size": 16, "step_tokens": 90}
    harness = Harness(tmp_path, running_max=9, **size)
    model = harness.runner.model
    assert isinstance(model, EagerModel)
    steps: list[tuple[int, int]] = []

    def together(
        queries: torch.Tensor, cache: KvCache, layer: int, plan: AttentionPlan
    ) -> torch.Tensor:
        assert plan.spans is not None and not plan.prefills
        steps.append((sum(group.stop for group in plan.decodes), len(plan.spans.lengths)))
        return attend_by_definition(queries, cache, layer, plan)

    model.decoder.kernels = replace(ON_CPU, together=together)
    shared = prompt_of(40)
    prompts = [shared + prompt_of(2 + 7 * number, seed=number) for number in range(9)]
    for number, prompt in enumerate(prompts):
        if number % 3 == 2:
            harness.step()
        harness.accept(job_of(prompt, number, max_tokens=12))
    outputs = harness.run()
    seen = [each for step in harness.steps for each in step.outputs]
    assert {each.usage.cached_tokens for each in seen} >= {0, 32}
    for number, prompt in enumerate(prompts):
        mine = [each for each in seen if each.request == number.to_bytes(16, "big")]
        assert tokens_of(mine) == continuation(oracle, prompt, 12)
    assert outputs
    assert any(decoding and spans > 1 for decoding, spans in steps)
    assert min(spans for _, spans in steps) == 2
