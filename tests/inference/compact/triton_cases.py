"""The Triton kernels against the definition of attention: on a GPU, or in Triton's interpreter.

Run by `make test-triton`, not with the other tests, since Triton is 1 GB where torch did not bring
it. The interpreter cannot multiply bfloat16, so that is tried on a GPU only.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inference.compact.attention.kernels import ON_CPU, Trial
from inference.compact.config.shape import read_shape
from inference.compact.layers.ops import OpsTrial
from inference.compact.load.placement import Placement
from inference.compact.run.eager import EagerModel
from inference.compact.run.graphs import RecordedModel
from inference.compact.sampling.sampler import agrees_with_operators
from tests.inference.compact.shapes import SHAPES
from tests.inference.compact.tiny import (
    Harness,
    continuation,
    job_of,
    prompt_of,
    save_model,
    tokens_of,
)

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
DTYPES = ("float32", "bfloat16") if ON_GPU else ("float32",)
CACHES = ("auto", "fp8")
# Rounding to FP8 the interpreter loses a carry: half of what is just below a power of two.
TOLERANCE_INTERPRETED = 0.1
HEADS: dict[str, dict[str, Any]] = {
    "groups of two": {},
    "no groups, wider": {"num_key_value_heads": 4, "head_dim": 32},
    "seven to one, odd width": {
        "hidden_size": 56,
        "num_attention_heads": 7,
        "num_key_value_heads": 1,
        "head_dim": 24,
    },
}


@pytest.fixture(scope="module")
def paged() -> Any:
    return importlib.import_module("inference.compact.attention.paged")


@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [16, 32])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("kv_dtype", CACHES)
def test_paged_attention(
    tmp_path: Path, paged: Any, kv_dtype: str, heads: str, block_size: int, dtype: str
) -> None:
    save_model(tmp_path, **HEADS[heads])
    sizes: dict[str, Any] = {"block_size": block_size, "kv_blocks": 1, "threads": None}
    placement = Placement(device=DEVICE, dtype=dtype, kv_dtype=kv_dtype, **sizes)
    trial = Trial(read_shape(tmp_path), placement)
    assert trial.decodes(paged.decode_paged)
    assert trial.prefills(paged.prefill_paged)
    assert trial.together(paged.attend_together)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kv_dtype", CACHES)
@pytest.mark.parametrize("name", ["llama", "llama-wide-heads", "qwen3", "mixtral"])
def test_what_lies_between_products(tmp_path: Path, name: str, kv_dtype: str, dtype: str) -> None:
    kind, overrides = SHAPES[name]
    save_model(tmp_path, kind, **overrides)
    sizes: dict[str, Any] = {"block_size": 16, "kv_blocks": 1, "threads": None}
    placement = Placement(device=DEVICE, dtype=dtype, kv_dtype=kv_dtype, **sizes)
    fused = importlib.import_module("inference.compact.layers.ops_triton").FUSED
    trial = OpsTrial(read_shape(tmp_path), placement)
    if kv_dtype == "fp8" and not ON_GPU:
        trial.tolerance = TOLERANCE_INTERPRETED
    assert trial.agrees(fused)
    broken = replace(fused, gate=lambda x: -fused.gate(x))
    assert not trial.agrees(broken)

    def forgets_values(*inputs: Any) -> torch.Tensor:
        queries: torch.Tensor = fused.place_heads(*inputs)
        inputs[4].values[:, 1] = 0.0
        return queries

    assert not trial.agrees(replace(fused, place_heads=forgets_values))


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_draws() -> None:
    draw_rows = importlib.import_module("inference.compact.sampling.kernel").draw_rows
    assert agrees_with_operators(draw_rows, DEVICE)


@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")
def test_a_row_is_the_same_in_any_batch(tmp_path: Path, paged: Any) -> None:
    save_model(tmp_path)
    placement = Placement(device=DEVICE, dtype="float32", block_size=16, kv_blocks=1, threads=None)
    trial = Trial(read_shape(tmp_path), placement)
    outputs = []

    def kernel(*inputs: Any) -> torch.Tensor:
        queries, cache, layer, group = inputs
        whole = paged.decode_paged(queries, cache, layer, group)
        for row in range(len(queries)):
            alone = replace(
                group,
                stop=1,
                table=group.table[row : row + 1],
                lengths=group.lengths[row : row + 1],
                mask=None,
            )
            single = paged.decode_paged(queries[row : row + 1], cache, layer, alone)
            outputs.append(torch.equal(single[0], whole[row]))
        return whole  # type: ignore[no-any-return]

    assert trial.decodes(kernel)
    assert outputs and all(outputs)


@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")
@pytest.mark.parametrize(("name", "recorded"), [("llama", False), ("qwen2-window", True)])
def test_a_model_over_the_kernels_says_the_same(
    tmp_path: Path, paged: Any, name: str, recorded: bool
) -> None:
    """Prompts of any length in one launch, behind prefixes, beside decoding rows; also from the
    inputs that recordings have.
    """
    kind, overrides = SHAPES[name]
    oracle = save_model(tmp_path, kind, **overrides)
    size: dict[str, Any] = {"kv_blocks": 40, "block_size": 16, "step_tokens": 16}
    harness = Harness(tmp_path, device=DEVICE, kernels="torch", running_max=3, **size)
    model = harness.runner.model
    plain = model.eager if isinstance(model, RecordedModel) else model
    assert isinstance(plain, EagerModel)
    plain.decoder.kernels = replace(
        ON_CPU,
        decode=paged.decode_paged,
        prefill=paged.prefill_paged,
        decode_masks=False,
        together=paged.attend_together,
    )
    harness.runner.model = plain
    if recorded:
        with torch.inference_mode():
            harness.runner.model = RecordedModel(plain, lambda step: step, rows_max=3, mixed=(16,))
    shared = prompt_of(18)
    prompts = [shared + prompt_of(2 + 3 * number, seed=number) for number in range(3)]
    outputs = harness.run(*(job_of(prompt, n, max_tokens=3) for n, prompt in enumerate(prompts)))
    for number, prompt in enumerate(prompts):
        assert tokens_of(outputs[number, 0]) == continuation(oracle, prompt, 3)
