"""Packing: whole dialogues only, little padding, a batch that depends on seed and step alone."""

from __future__ import annotations

import pytest
import torch

from inference.train.batches import batch_of_step
from inference.train.schedule import Stage
from inference.train.tokenizer import Encoder, train_tokenizer

STAGE = Stage(until=1, rows=6, length=256, long_share=0.0)
LONG = Stage(until=1, rows=2, length=2048, long_share=0.8)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(train_tokenizer(1, vocab_size=600, dialogues=300))


@pytest.mark.parametrize("stage", [STAGE, LONG])
def test_rows_are_nearly_full_and_hold_whole_dialogues(encoder: Encoder, stage: Stage) -> None:
    batch = batch_of_step(encoder, stage, seed=1, step=7)
    assert batch.ids.shape == (stage.rows, stage.length)
    assert (batch.ids != encoder.pad).float().mean() > 0.85
    assert (batch.targets[:, :-1] == batch.ids[:, 1:]).all()
    assert not (batch.targets[batch.said] == encoder.pad).any()
    last_said = batch.said.int().cumsum(1).argmax(1)
    assert (batch.targets[torch.arange(stage.rows), last_said] == encoder.end).all()


def test_a_batch_depends_on_seed_and_step_alone(encoder: Encoder) -> None:
    batch = batch_of_step(encoder, STAGE, seed=1, step=7)
    assert torch.equal(batch.ids, batch_of_step(encoder, STAGE, seed=1, step=7).ids)
    assert not torch.equal(batch.ids, batch_of_step(encoder, STAGE, seed=1, step=8).ids)
    assert not torch.equal(batch.ids, batch_of_step(encoder, STAGE, seed=2, step=7).ids)
