"""The evaluation: held-out prompts of every family, and a count of right answers."""

from __future__ import annotations

import pytest
import torch

from inference.train.data.compose import FAMILIES, LONG_FAMILIES
from inference.train.evaluate import (
    Sampling,
    accuracy,
    answers,
    choose,
    held_out_by_family,
)
from inference.train.model import Llama, ModelConfig
from inference.train.tokenizer import Encoder, train_tokenizer

TINY = ModelConfig(
    vocab_size=400, hidden_size=32, layers=1, heads=4, kv_heads=2, head_dim=8, intermediate_size=48
)
SEARCHED = 1_500
LONGEST_TOKEN_BYTES = 32
UNCHECKED = frozenset({"joke", "story", "talk"})
"""Families with many good answers, so no single piece of text tells a right one."""


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(train_tokenizer(1, vocab_size=TINY.vocab_size, dialogues=300))


def test_held_out_prompts_cover_the_families() -> None:
    found = held_out_by_family(1, searched=SEARCHED)
    checked = {*FAMILIES, *LONG_FAMILIES} - UNCHECKED
    assert checked <= {family for family, dialogues in found.items() if dialogues}
    for dialogues in found.values():
        assert all(one.held_out and one.must for one in dialogues)


def test_an_untrained_model_is_wrong_and_stops_at_the_bound(encoder: Encoder) -> None:
    model = Llama(TINY)
    model.initialize(torch.Generator().manual_seed(1))
    dialogues = held_out_by_family(1, searched=SEARCHED)["capital"]
    assert accuracy(model, encoder, dialogues) == 0.0
    sampling = Sampling(temperature=1.0, tokens_max=4)
    (text,) = answers(model, encoder, [encoder.prompt(dialogues[0])], sampling)
    assert 0 < len(text.encode()) <= 4 * LONGEST_TOKEN_BYTES


def test_temperature_zero_takes_the_most_likely_token() -> None:
    logits = torch.tensor([[0.0, 5.0, 1.0], [9.0, 0.0, 0.0]])
    generator = torch.Generator().manual_seed(1)
    assert choose(logits, Sampling(), generator) == [1, 0]
    drawn = {choose(logits, Sampling(5.0), generator)[0] for _ in range(200)}
    assert drawn == {0, 1, 2}
