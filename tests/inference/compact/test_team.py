"""A model on two processes computes what it computes on one; a lost process is an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from inference.compact.models.shape import read_shape
from inference.compact.options import CompactOptions
from inference.compact.placement import choose_placement
from inference.compact.team import TeamModel
from inference.engines.base import ModelError
from tests.inference.compact.shapes import SHAPES
from tests.inference.compact.tiny import (
    Harness,
    continuation,
    job_of,
    prompt_of,
    save_model,
    tokens_of,
)

TOLERANCE = 1e-4
SIZE = {"kv_blocks": 24, "block_size": 16, "step_tokens": 37, "running_max": 4}


@pytest.fixture
def teams() -> Iterator[list[TeamModel]]:
    made: list[TeamModel] = []
    yield made
    for team in made:
        team.close()
    assert not dist.is_initialized()
    assert not any(follower.is_alive() for team in made for follower in team.followers)


def _team(harness: Harness) -> TeamModel:
    model = harness.runner.model
    assert isinstance(model, TeamModel)
    return model


@pytest.mark.parametrize("name", ["llama-biased", "qwen3-moe-some-dense", "qwen2-window"])
def test_two_processes_say_what_one_says(name: str, tmp_path: Path, teams: list[TeamModel]) -> None:
    kind, overrides = SHAPES[name]
    oracle = save_model(tmp_path, kind, **overrides)
    shared = prompt_of(40)
    prompts = [shared + prompt_of(5 + 9 * number, seed=number) for number in range(4)]
    jobs = [job_of(p, n, max_tokens=12, logprobs=5) for n, p in enumerate(prompts)]
    harness = Harness(tmp_path, tensor_parallel=2, **SIZE)
    teams.append(_team(harness))
    outputs = harness.run(*jobs)
    for number, prompt in enumerate(prompts):
        said = tokens_of(outputs[number, 0])
        assert said == continuation(oracle, prompt, 12)
        with torch.inference_mode():
            logits = oracle(torch.tensor([prompt + said[:-1]])).logits[0]
        expected = logits.log_softmax(-1)[len(prompt) - 1 :].max(-1).values
        reported = [each.logprob for output in outputs[number, 0] for each in output.logprobs or []]
        assert reported == pytest.approx(expected.tolist(), abs=TOLERANCE)


def test_a_lost_process_ends_the_step(tmp_path: Path, teams: list[TeamModel]) -> None:
    save_model(tmp_path)
    harness = Harness(tmp_path, tensor_parallel=2, **SIZE)
    team = _team(harness)
    teams.append(team)
    harness.accept(job_of(prompt_of(20), max_tokens=50))
    harness.step()
    team.followers[0].kill()
    team.followers[0].join()
    with pytest.raises((OSError, RuntimeError)):
        harness.step()


def test_a_bad_checkpoint_is_named_and_leaves_nothing_behind(tmp_path: Path) -> None:
    save_model(tmp_path)
    shape = read_shape(tmp_path)
    options = CompactOptions(device="cpu", dtype="float32", kv_blocks=4, tensor_parallel=2)
    placement = choose_placement(shape, options)
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ModelError, match="model.safetensors"):
        TeamModel(tmp_path, shape, placement)
    assert not dist.is_initialized()


@pytest.mark.parametrize(("size", "named"), [(3, "heads"), (4, "kv_heads"), (8, "heads")])
def test_what_cannot_be_divided_is_refused(tmp_path: Path, size: int, named: str) -> None:
    save_model(tmp_path)
    options = CompactOptions(device="cpu", dtype="float32", tensor_parallel=size)
    with pytest.raises(ModelError, match=f"tensor_parallel: .*{named}"):
        choose_placement(read_shape(tmp_path), options)


def test_each_process_holds_half_the_cache(tmp_path: Path) -> None:
    save_model(tmp_path)
    shape = read_shape(tmp_path)
    one, two = (
        choose_placement(
            shape, CompactOptions(device="cpu", dtype="float32", tensor_parallel=size)
        ).kv_blocks
        for size in (1, 2)
    )
    assert two // 2 == one
