"""Each sampler draws from the distribution it names; seeds repeat; log probabilities are plain.

Counts of 4,000 seeded draws are held to within five standard deviations of a naive computation.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from inference.compact.batch import Uploader
from inference.compact.ending import Pick
from inference.compact.request import Request, Sequence
from inference.compact.sampler import Sampler
from inference.compact.scheduler import Chunk
from tests.inference.compact.tiny import job_of

DRAWS = 4000
DEVIATIONS_MAX = 5.0
Logits = list[float]


def _sequence(seed: int, said: list[int] | None = None, **sampling: Any) -> Sequence:
    job = job_of([1, 2, 3], **{"temperature": 1.0, **sampling})
    (sequence,) = Request(job, block_size=32, received_us=0, seed=seed).sequences[:1]
    for token in said or []:
        sequence.append(token)
    return sequence


def _chunk(sequence: Sequence) -> Chunk:
    return Chunk(sequence, len(sequence.tokens) - 1, count=1, draws=1)


def _draw(logits: Logits, sequences: list[Sequence]) -> list[Pick]:
    table = torch.tensor([logits] * len(sequences))
    return Sampler(Uploader("cpu")).draw(table, [_chunk(each) for each in sequences])


def _softmax(logits: Logits) -> list[float]:
    top = max(logits)
    weights = [math.exp(value - top) for value in logits]
    return [weight / sum(weights) for weight in weights]


def _naive(logits: Logits, sampling: dict[str, Any]) -> list[float]:
    """Temperature, then top-k, top-p and min-p one after the other, by the book."""
    temperature = sampling.get("temperature", 1.0)
    shares = _softmax([value / temperature for value in logits])
    order = sorted(range(len(shares)), key=lambda token: -shares[token])
    best = shares[order[0]]
    order = order[: sampling.get("top_k") or len(order)]
    mass = sum(shares[token] for token in order)
    kept: list[int] = []
    so_far = 0.0
    for token in order:
        if so_far < sampling.get("top_p", 1.0) * mass or not kept:
            kept.append(token)
        so_far += shares[token]
    kept = [token for token in kept if shares[token] >= sampling.get("min_p", 0.0) * best]
    total = sum(shares[token] for token in kept)
    return [shares[token] / total if token in kept else 0.0 for token in range(len(shares))]


PEAKED = [math.sin(3.0 * index) * 2.0 for index in range(40)]
FLAT = [0.01 * math.cos(7.0 * index) for index in range(300)]


@pytest.mark.parametrize(
    ("logits", "sampling"),
    [
        (PEAKED, {}),
        (PEAKED, {"temperature": 0.5}),
        (PEAKED, {"temperature": 1.7}),
        (PEAKED, {"top_k": 5}),
        (PEAKED, {"top_p": 0.6}),
        (PEAKED, {"top_p": 0.0}),
        (PEAKED, {"min_p": 0.3}),
        (PEAKED, {"top_k": 12, "top_p": 0.8, "min_p": 0.2, "temperature": 0.9}),
        (FLAT, {"top_p": 0.9}),
        (FLAT, {"top_k": 100}),
        (FLAT, {"min_p": 0.99}),
    ],
    ids=str,
)
def test_counts_follow_the_distribution(logits: Logits, sampling: dict[str, Any]) -> None:
    picks = _draw(logits, [_sequence(seed, **sampling) for seed in range(DRAWS)])
    counts = [0] * len(logits)
    for pick in picks:
        assert pick.token is not None
        counts[pick.token] += 1
    for count, share in zip(counts, _naive(logits, sampling), strict=True):
        if share == 0.0:
            assert count == 0
        deviation = math.sqrt(DRAWS * share * (1 - share))
        assert abs(count - DRAWS * share) <= DEVIATIONS_MAX * deviation + 1e-6


def test_mixed_rows_draw_as_they_would_alone() -> None:
    kinds: list[dict[str, Any]] = [
        {}, {"temperature": 0.0}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.2}, {"logprobs": 2},
    ]  # fmt: skip
    sequences = [_sequence(seed, **kinds[seed % len(kinds)]) for seed in range(60)]
    together = _draw(PEAKED, sequences)
    alone = [_draw(PEAKED, [sequence])[0] for sequence in sequences]
    assert [pick.token for pick in together] == [pick.token for pick in alone]


def test_greedy_takes_the_highest() -> None:
    (pick,) = _draw([0.1, 2.0, 1.9], [_sequence(1, temperature=0.0)])
    assert pick.token == 1


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ({"frequency_penalty": 0.4}, [2.0 - 0.8, 1.5 - 0.4, 1.3]),
        ({"presence_penalty": 0.6}, [2.0 - 0.6, 1.5 - 0.6, 1.3]),
        ({"logit_bias": {2: 1.0, 0: -5.0}}, [-3.0, 1.5, 2.3]),
        (
            {"frequency_penalty": 0.1, "presence_penalty": 0.2, "logit_bias": {0: 1.0}},
            [3.0 - 0.4, 1.5 - 0.3, 1.3],
        ),
    ],
    ids=str,
)
def test_penalties_and_bias_shift_logits(sampling: dict[str, Any], expected: Logits) -> None:
    logits = torch.tensor([[2.0, 1.5, 1.3]])
    sequence = _sequence(1, said=[0, 0, 1], temperature=0.0, **sampling)
    (pick,) = Sampler(Uploader("cpu")).draw(logits, [_chunk(sequence)])
    assert logits[0].tolist() == pytest.approx(expected)
    assert pick.token == expected.index(max(expected))


def test_log_probabilities_are_the_models_own() -> None:
    """Neither temperature nor bias nor penalties change what is reported, as in OpenAI's API."""
    asked: dict[str, Any] = {"logprobs": 3, "temperature": 0.2, "top_k": 1, "logit_bias": {0: 50.0}}
    (pick,) = _draw([1.0, 3.0, 2.0, 0.0], [_sequence(5, **asked)])
    shares = [math.log(share) for share in _softmax([1.0, 3.0, 2.0, 0.0])]
    assert pick.token == 0
    assert pick.logprob is not None
    assert pick.logprob.logprob == pytest.approx(shares[0], abs=1e-5)
    assert [token for token, _ in pick.logprob.top] == [1, 2, 0]
    assert [value for _, value in pick.logprob.top] == pytest.approx(
        [shares[1], shares[2], shares[0]], abs=1e-5
    )


def test_no_alternatives_is_not_no_log_probability() -> None:
    (pick,) = _draw([1.0, 3.0], [_sequence(5, logprobs=0)])
    assert pick.logprob is not None
    assert pick.logprob.top == []


def test_logits_that_are_no_numbers_are_an_error() -> None:
    for temperature in (0.0, 1.0):
        (pick,) = _draw([1.0, math.nan], [_sequence(5, temperature=temperature)])
        assert pick.token is None
