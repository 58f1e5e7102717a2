"""Training repeats: same seed, same weights; stopped and resumed, same weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from inference.train.evaluate import Sampling, ask, held_out_loss, load_model
from inference.train.export import export
from inference.train.loop import Device, Limits, Trainer, run
from inference.train.model import ModelConfig
from inference.train.schedule import Plan, Stage
from inference.train.tokenizer import Encoder, train_tokenizer

TINY = ModelConfig(
    vocab_size=400, hidden_size=32, layers=2, heads=4, kv_heads=2, head_dim=8, intermediate_size=48
)
STAGES = (
    Stage(until=1300, rows=2, length=128, long_share=0.0),
    Stage(until=1950, rows=1, length=512, long_share=0.5),
)
PLAN = Plan(
    seed=3,
    steps=8,
    stages=STAGES,
    mixed=STAGES,
    warmup_steps=2,
    tokenizer_dialogues=200,
    model=TINY,
)
LIMITS = Limits(minutes_max=10.0, save_every_s=1000.0, report_every_steps=2)
DTYPES = (torch.float32, torch.bfloat16)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(3, vocab_size=TINY.vocab_size, dialogues=200)


def trained(tokenizer: Tokenizer, folder: Path, dtype: torch.dtype) -> Trainer:
    trainer = Trainer(PLAN, tokenizer, Device("cpu", dtype))
    assert run(trainer, folder, LIMITS, lambda line: None)
    return trainer


def assert_same_weights(one: Trainer, other: Trainer) -> None:
    for name, weight in one.master.state_dict().items():
        assert torch.equal(weight, other.master.state_dict()[name]), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_same_seed_gives_the_same_weights(
    tokenizer: Tokenizer, tmp_path: Path, dtype: torch.dtype
) -> None:
    first = trained(tokenizer, tmp_path / "a", dtype)
    assert_same_weights(first, trained(tokenizer, tmp_path / "b", dtype))


def test_resume_gives_what_an_uninterrupted_run_gives(tokenizer: Tokenizer, tmp_path: Path) -> None:
    whole = trained(tokenizer, tmp_path / "whole", torch.bfloat16)
    device = Device("cpu", torch.bfloat16)
    first = Trainer(PLAN, tokenizer, device)
    assert not run(first, tmp_path / "cut", replace(LIMITS, minutes_max=0.0), lambda line: None)
    assert first.step == 1
    second = Trainer(PLAN, tokenizer, device)
    second.load(tmp_path / "cut")
    assert run(second, tmp_path / "cut", LIMITS, lambda line: None)
    assert_same_weights(whole, second)


def test_a_checkpoint_of_another_plan_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    trained(tokenizer, tmp_path, torch.float32)
    other = Trainer(replace(PLAN, steps=9), tokenizer, Device("cpu", torch.float32))
    with pytest.raises(ValueError, match="plan"):
        other.load(tmp_path)


def test_resume_without_a_checkpoint_says_so(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="resume"):
        Trainer(PLAN, tokenizer, Device("cpu", torch.float32)).load(tmp_path)


def test_training_lowers_the_loss_and_reports(tokenizer: Tokenizer, tmp_path: Path) -> None:
    plan = replace(PLAN, steps=60, rate_max=1e-2)
    trainer = Trainer(plan, tokenizer, Device("cpu", torch.float32))
    encoder = Encoder(tokenizer)
    before = held_out_loss(trainer.twin, encoder, STAGES[0], rounds=2)
    lines: list[str] = []
    assert run(trainer, tmp_path, LIMITS, lines.append)
    assert held_out_loss(trainer.twin, encoder, STAGES[0], rounds=2) < before - 1.0
    assert len(lines) == plan.steps // LIMITS.report_every_steps
    assert lines[-1].startswith("step 60/60 loss ")


def test_export_loads_again_and_answers(tokenizer: Tokenizer, tmp_path: Path) -> None:
    trainer = trained(tokenizer, tmp_path / "work", torch.float32)
    export(trainer.master, tokenizer, tmp_path / "out")
    model, again = load_model(tmp_path / "out")
    assert model.config == TINY
    ids = torch.arange(50).reshape(1, -1)
    rounded = {name: one.bfloat16().float() for name, one in trainer.master.state_dict().items()}
    trainer.twin.load_state_dict(rounded)
    assert torch.equal(model(ids), trainer.twin(ids))
    sampling = Sampling(0.7, seed=1, tokens_max=8)
    said = ask(model, Encoder(again), ["Hello!", "What is 1 + 1?"], sampling)
    assert said == ask(model, Encoder(again), ["Hello!", "What is 1 + 1?"], sampling)


def test_the_plan_names_its_stages_and_rates() -> None:
    plan = Plan()
    lengths = [plan.stage(step).length for step in range(plan.steps)]
    mixed_from = plan.scaled(plan.stages[-1].until)
    assert lengths[:mixed_from] == sorted(lengths[:mixed_from])
    assert max(lengths) == plan.model.positions_max
    assert set(lengths[mixed_from:]) == {256, 1024, plan.model.positions_max}
    assert lengths.count(256) / plan.steps > 0.85
    rates = [plan.rate(step) for step in range(plan.steps)]
    assert max(rates) == plan.rate_max
    assert rates[0] < rates[plan.warmup_steps - 1]
    falling = rates[plan.warmup_steps : mixed_from]
    assert falling == sorted(falling, reverse=True)
    assert rates[mixed_from:] == sorted(rates[mixed_from:], reverse=True)
    assert rates[-1] < 0.03 * plan.rate_max


def test_a_short_plan_has_the_same_shape() -> None:
    short = Plan(steps=26)
    lengths = [short.stage(step).length for step in range(short.steps)]
    assert lengths[:21] == [256] * 21
    assert lengths[21:23] == [1024, 2048]
    assert 256 in lengths[23:]
    assert short.rate(25) < short.rate_max
