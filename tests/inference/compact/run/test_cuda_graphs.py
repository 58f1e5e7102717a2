"""Real recordings on a GPU: the same tokens as without them, and no memory left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from inference.compact.run.ahead import AheadLoop
from inference.compact.run.eager import EagerModel
from inference.compact.run.graphs import CudaRecorder, RecordedModel
from inference.compact.run.loop import StepLoop
from tests.inference.compact.shapes import SHAPES
from tests.inference.compact.tiny import Harness, job_of, prompt_of, save_model, tokens_of

DTYPES = ("float32", "bfloat16")
SIZE = {"kv_blocks": 20, "block_size": 16, "step_tokens": 37, "running_max": 5}


CASES = [
    *((name, dtype) for name in ("llama", "qwen2-window", "qwen3") for dtype in DTYPES),
    ("smollm3", "bfloat16"),
    ("mixtral", "bfloat16"),
    ("qwen3-moe-some-dense", "bfloat16"),
]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_recordings_change_no_token(name: str, dtype: str, tmp_path: Path) -> None:
    """Under chunks, prefix hits and preemption, greedy and drawn; nor does planning ahead."""
    kind, overrides = SHAPES[name]
    save_model(tmp_path, kind, **overrides)
    shared = prompt_of(40)
    jobs = [
        job_of(
            shared + prompt_of(5 + 9 * number, seed=number),
            number,
            max_tokens=40,
            temperature=0.7 * (number % 2),
            seed=number,
        )
        for number in range(5)
    ]
    texts = []
    for recorded, make in ((False, StepLoop), (True, StepLoop), (True, AheadLoop)):
        harness = Harness(tmp_path, device="cuda", dtype=dtype, make=make, **SIZE)
        model = harness.runner.model
        assert isinstance(model, RecordedModel)
        if not recorded:
            harness.runner.model = model.eager
        elif dtype == "bfloat16":
            # Prompts by another kernel, which differs in the last bits.
            harness.runner.model = RecordedModel(model.eager, CudaRecorder(), mixed=())
        outputs = harness.run(*jobs)
        texts.append([tokens_of(outputs[number, 0]) for number in range(5)])
        assert sum(step.preemptions for step in harness.steps) > 0
        assert sum(outputs[number, 0][-1].usage.cached_tokens for number in range(5)) > 0
    assert texts[0] == texts[1] == texts[2]


def test_a_step_leaves_no_memory_behind(tmp_path: Path) -> None:
    save_model(tmp_path)
    harness = Harness(tmp_path, device="cuda", **SIZE)
    held = []
    for number in range(3):
        harness.run(job_of(prompt_of(50), number, max_tokens=60))
        held.append(torch.cuda.memory_allocated())
    assert held[1] == held[2]


def test_experts_in_float32_are_not_recorded(tmp_path: Path) -> None:
    kind, overrides = SHAPES["mixtral"]
    save_model(tmp_path, kind, **overrides)
    assert isinstance(Harness(tmp_path, device="cuda", **SIZE).runner.model, EagerModel)
