"""Keys and values in FP8: near what they are in full, half the bytes, the same however computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from inference.compact.attention.cache import KvCache, coded
from inference.compact.config.shape import read_shape
from inference.compact.load.placement import (
    CPU_KV_BYTES,
    Placement,
    check_fp8_cache,
    choose_placement,
)
from inference.compact.options import CompactOptions
from inference.compact.run.eager import EagerModel
from inference.compact.run.path import compute_path
from inference.compact.run.roofline import Work
from inference.compact.run.runner import Runner
from inference.compact.schedule.request import Request
from inference.compact.schedule.scheduler import Chunk
from inference.errors import ModelError
from tests.inference.compact.tiny import Harness, job_of, prompt_of, save_model, tokens_of
from tests.support.shipped import SHIPPED

BLOCK = 32
# Three bits behind the first: at most a sixteenth, and what a rounded scale adds.
ROUNDING = 1 / 16 + 1 / 256
# Of a row's logits by their norm; and of nats a token. Seen: 3.3 %, 0.014.
TOLERANCE_SHIPPED = 0.06
TOLERANCE_NATS = 0.04


def _placement(**changes: Any) -> Placement:
    sizes: dict[str, Any] = {"block_size": BLOCK, "kv_blocks": 16, "threads": None}
    return Placement(
        **{"device": "cpu", "dtype": "bfloat16", "kv_dtype": "fp8", **sizes, **changes}
    )


def test_what_is_stored_is_near_whatever_its_size() -> None:
    random = torch.Generator().manual_seed(1)
    sizes = 10.0 ** torch.arange(-6, 7).float()[:, None, None, None]
    values = torch.randn(len(sizes), 2, 3, 64, generator=random) * sizes
    codes, scales = coded(values)
    found = codes.float() * scales.float()[..., None]
    # What is small beside its neighbours has fewer bits still.
    least = values.abs().amax(-1, keepdim=True) * 2.0**-16
    assert ((found - values).abs() <= ROUNDING * values.abs() + least).all()
    assert found.isfinite().all()
    assert not coded(torch.zeros(1, 4))[0].float().any()


def test_a_number_that_is_none_stays_with_its_token() -> None:
    values = torch.ones(3, 2, 1, 16)
    values[1, 0, 0, 5] = float("nan")
    codes, scales = coded(values)
    found = codes.float() * scales.float()[..., None]
    assert found.isnan().any(-1).nonzero().tolist() == [[1, 0, 0]]


def test_blocks_have_the_bytes_that_are_reckoned() -> None:
    shape = read_shape(SHIPPED)
    counts, read = {}, {}
    for kv_dtype in ("auto", "fp8"):
        options = CompactOptions(device="cpu", dtype="bfloat16", kernels="torch", kv_dtype=kv_dtype)
        placement = choose_placement(shape, options)
        counts[kv_dtype] = placement.kv_blocks
        assert 0 <= CPU_KV_BYTES - placement.kv_blocks * placement.block_bytes(shape) < 10**5
        cache = KvCache(shape, _placement(kv_dtype=kv_dtype))
        held = cache.blocks.nbytes + (0 if cache.scales is None else cache.scales.nbytes)
        assert held == placement.block_bytes(shape) * (16 + 1)
        token = placement.block_bytes(shape) // shape.layers // BLOCK
        work = Work(shape, cached_bytes=token)
        read[kv_dtype] = work.step_bytes([1000]) - work.weight_bytes
    ratio = 2 * shape.head_dim / (shape.head_dim + 2)
    assert counts["fp8"] / counts["auto"] == pytest.approx(ratio, rel=0.001)
    assert read["auto"] / read["fp8"] == pytest.approx(ratio)


def _logits(kv_dtype: str, tokens: list[int], counts: list[int]) -> Tensor:
    """Of every token, in chunks of these counts."""
    shape, placement = read_shape(SHIPPED), _placement(kv_dtype=kv_dtype)
    model = Runner.load(SHIPPED, shape, placement).model
    assert isinstance(model, EagerModel)
    (sequence,) = Request(job_of(tokens), block_size=BLOCK, received_us=0, seed=0).sequences
    sequence.blocks = list(range(-(-len(tokens) // BLOCK)))
    found, start = [], 0
    with torch.inference_mode():
        for count in counts:
            chunk = Chunk(sequence, start, count, 0, scored_rows=count)
            found.append(model.forward([chunk]).clone())
            start += count
    expected = "torch" if kv_dtype == "auto" else "torch, fp8 cache"
    assert compute_path(model, placement).kernels == expected
    return torch.cat(found)


def test_the_shipped_model_says_nearly_the_same() -> None:
    tokens = torch.randint(6, 4096, (400,), generator=torch.Generator().manual_seed(0)).tolist()
    right = _logits("auto", tokens, [400])
    found = _logits("fp8", tokens, [300, 99, 1])
    apart = (found - right).norm(dim=-1) / right.norm(dim=-1)
    assert apart.mean() < TOLERANCE_SHIPPED
    # Where the first two are not about as likely.
    best = right.topk(2, dim=-1)[0]
    clear = best[:, 0] - best[:, 1] > 0.1
    same = found.argmax(-1) == right.argmax(-1)
    assert same[clear].float().mean() > 0.95
    following = torch.tensor(tokens[1:])[:, None]
    nats = [-each[:-1].log_softmax(-1).gather(1, following).mean() for each in (right, found)]
    assert abs(float(nats[0] - nats[1])) < TOLERANCE_NATS


@pytest.mark.parametrize("kind", ["llama", "qwen3", "mistral"])
def test_found_prefixes_say_what_computed_ones_say(tmp_path: Path, kind: str) -> None:
    save_model(tmp_path, kind, **({"sliding_window": 21} if kind == "mistral" else {}))
    harness = Harness(tmp_path, kernels="torch", kv_dtype="fp8", kv_blocks=40, block_size=16)
    prompt = prompt_of(60)
    first = harness.run(job_of(prompt, 1, max_tokens=20))
    second = harness.run(job_of(prompt, 2, max_tokens=20), job_of(prompt_of(30, 5), 3))
    assert tokens_of(first[1, 0]) == tokens_of(second[2, 0])
    assert second[2, 0][-1].usage.cached_tokens == 48


def test_a_gpu_that_cannot_is_refused_by_name() -> None:
    check_fp8_cache(8, 9)
    check_fp8_cache(9, 0)
    expected = "^kv_dtype: fp8 needs a GPU of compute capability 8.9, this one has 8.6$"
    with pytest.raises(ModelError, match=expected):
        check_fp8_cache(8, 6)


def test_native_code_cannot_be_asked_for_it() -> None:
    options = CompactOptions(device="cpu", kernels="native", kv_dtype="fp8")
    with pytest.raises(ModelError, match="^kernels: native code cannot be used: an fp8 cache"):
        choose_placement(read_shape(SHIPPED), options)
