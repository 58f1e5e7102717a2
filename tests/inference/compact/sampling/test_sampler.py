"""Each sampler draws from the distribution it names; seeds repeat; log probabilities are plain.

Counts of 4,000 seeded draws are held against a naive computation by a chi-square test.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from inference.compact.batch.tensors import Uploader
from inference.compact.sampling.operators import top_columns
from inference.compact.sampling.rng import TRIES_MAX, uniforms
from inference.compact.sampling.sampler import LOGPROB_MIN, Sampler, ban
from inference.compact.schedule.outputs import SampledToken
from inference.compact.schedule.request import Request, Sequence, stream_of
from inference.compact.schedule.scheduler import Chunk
from tests.inference.compact.sampling.chi import chi_square, chi_square_limit
from tests.inference.compact.tiny import job_of

DRAWS = 4000
Logits = list[float]


def _sequence(seed: int, said: list[int] | None = None, **sampling: Any) -> Sequence:
    job = job_of([1, 2, 3], **{"temperature": 1.0, **sampling})
    (sequence,) = Request(job, block_size=32, received_us=0, seed=seed).sequences[:1]
    for token in said or []:
        sequence.append(token)
    return sequence


def _chunk(sequence: Sequence) -> Chunk:
    return Chunk(sequence, len(sequence.tokens) - 1, count=1, sampled_rows=1)


def _draw(logits: Logits, sequences: list[Sequence], device: str) -> list[SampledToken]:
    table = torch.tensor([logits] * len(sequences), device=device)
    return Sampler(Uploader(device)).draw(table, [_chunk(each) for each in sequences])


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


CASES: list[tuple[Logits, dict[str, Any]]] = [
    (PEAKED, {}),
    (PEAKED, {"temperature": 0.5}),
    (PEAKED, {"temperature": 1.7}),
    (PEAKED, {"top_k": 5}),
    (PEAKED, {"top_p": 0.6}),
    (PEAKED, {"top_p": 0.0}),
    (PEAKED, {"min_p": 0.3}),
    (PEAKED, {"top_p": 0.7, "min_p": 0.1}),
    (PEAKED, {"top_k": 12, "top_p": 0.8, "min_p": 0.2, "temperature": 0.9}),
    (FLAT, {"top_p": 0.9}),
    (FLAT, {"top_p": 0.05}),
    (FLAT, {"top_k": 100}),
    (FLAT, {"min_p": 0.99}),
]


@pytest.mark.parametrize(("logits", "sampling"), CASES, ids=str)
def test_counts_follow_the_distribution(
    logits: Logits, sampling: dict[str, Any], device: str
) -> None:
    counts = _counts(logits, sampling, device)
    shares = dict(enumerate(_naive(logits, sampling)))
    assert chi_square(counts, shares, DRAWS) < chi_square_limit(sum(map(bool, shares.values())))


@pytest.mark.parametrize(
    ("asked", "other"),
    [
        ({}, {"temperature": 1.2}),
        ({"top_p": 0.6}, {"top_p": 0.55}),
        ({"top_k": 5}, {"top_k": 6}),
        ({"min_p": 0.3}, {"min_p": 0.2}),
    ],
    ids=str,
)
def test_the_check_tells_neighbouring_settings_apart(
    asked: dict[str, Any], other: dict[str, Any], device: str
) -> None:
    shares = dict(enumerate(_naive(PEAKED, other)))
    limit = chi_square_limit(sum(map(bool, shares.values())))
    assert chi_square(_counts(PEAKED, asked, device), shares, DRAWS) > limit


def _counts(logits: Logits, sampling: dict[str, Any], device: str) -> Counter[int | None]:
    sequences = [_sequence(seed, **sampling) for seed in range(DRAWS)]
    return Counter(pick.token for pick in _draw(logits, sequences, device))


def test_mixed_rows_draw_as_they_would_alone(device: str) -> None:
    kinds: list[dict[str, Any]] = [
        {}, {"temperature": 0.0}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.2}, {"logprobs": 2},
    ]  # fmt: skip
    sequences = [_sequence(seed, **kinds[seed % len(kinds)]) for seed in range(60)]
    together = _draw(PEAKED, sequences, device)
    alone = [_draw(PEAKED, [sequence], device)[0] for sequence in sequences]
    assert [pick.token for pick in together] == [pick.token for pick in alone]


def test_greedy_takes_the_highest(device: str) -> None:
    (pick,) = _draw([0.1, 2.0, 1.9], [_sequence(1, temperature=0.0)], device)
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
def test_penalties_and_bias_shift_logits(
    sampling: dict[str, Any], expected: Logits, device: str
) -> None:
    logits = torch.tensor([[2.0, 1.5, 1.3]], device=device)
    sequence = _sequence(1, said=[0, 0, 1], temperature=0.0, **sampling)
    (pick,) = Sampler(Uploader(device)).draw(logits, [_chunk(sequence)])
    assert logits[0].tolist() == pytest.approx(expected)
    assert pick.token == expected.index(max(expected))


def test_log_probabilities_are_the_models_own(device: str) -> None:
    """Neither temperature nor bias nor penalties change what is reported, as in OpenAI's API."""
    asked: dict[str, Any] = {"logprobs": 3, "temperature": 0.2, "top_k": 1, "logit_bias": {0: 50.0}}
    (pick,) = _draw([1.0, 3.0, 2.0, 0.0], [_sequence(5, **asked)], device)
    shares = [math.log(share) for share in _softmax([1.0, 3.0, 2.0, 0.0])]
    assert pick.token == 0
    assert pick.logprob is not None
    assert pick.logprob.logprob == pytest.approx(shares[0], abs=1e-5)
    assert [token for token, _ in pick.logprob.top] == [1, 2, 0]
    assert [value for _, value in pick.logprob.top] == pytest.approx(
        [shares[1], shares[2], shares[0]], abs=1e-5
    )


def test_no_alternatives_is_not_no_log_probability(device: str) -> None:
    (pick,) = _draw([1.0, 3.0], [_sequence(5, logprobs=0)], device)
    assert pick.logprob is not None
    assert pick.logprob.top == []


def test_logits_that_are_no_numbers_are_an_error(device: str) -> None:
    for temperature in (0.0, 1.0):
        (pick,) = _draw([1.0, math.nan], [_sequence(5, temperature=temperature)], device)
        assert pick.token is None


def test_no_log_probability_is_infinite(device: str) -> None:
    (pick,) = _draw([1.0, -math.inf, 0.0], [_sequence(5, logprobs=3, logit_bias={1: 5.0})], device)
    assert pick.logprob is not None
    assert pick.logprob.top[-1] == (1, LOGPROB_MIN)


def test_uniform_numbers_are_uniform_and_independent_of_their_neighbours() -> None:
    """Over streams, positions and attempts, alone and against the next one in each direction."""
    streams = np.array([stream_of(seed, choice) for seed in range(50) for choice in range(2)])
    grid = np.stack([
        uniforms(streams.astype(np.uint64), np.full(100, position, np.uint64), attempt)
        for position in range(30) for attempt in (0, 1, TRIES_MAX - 1)
    ])  # fmt: skip
    assert 0.0 < grid.min() < grid.max() < 1.0
    assert len(np.unique(grid)) == grid.size
    cells = (grid * 10).astype(int)
    for pairs in (
        cells[:-1] * 10 + cells[1:],
        cells[:-3] * 10 + cells[3:],
        cells[:, :-1] * 10 + cells[:, 1:],
    ):
        counts = Counter(int(pair) for pair in pairs.ravel())
        shares = dict.fromkeys(range(100), 0.01)
        assert chi_square(counts, shares, pairs.size) < chi_square_limit(100)


@pytest.mark.parametrize(("rows", "columns"), [(1, 40), (3, 16_384), (9, 4096), (5, 5000)])
@pytest.mark.parametrize("width", [1, 7, 40])
def test_the_largest_columns_are_found(rows: int, columns: int, width: int, device: str) -> None:
    table = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)).to(device)
    values, places = top_columns(table, width)
    expected = table.topk(width, dim=-1)
    assert torch.equal(values, expected.values)
    assert torch.equal(places, expected.indices)


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.0},
        {},
        {"top_p": 0.8},
        {"top_k": 9},
        {"frequency_penalty": 1.5, "presence_penalty": 0.5, "logit_bias": {7: 1.0}},
    ],
    ids=str,
)
def test_rows_behind_drafts_draw_as_they_would_after_those_tokens(
    sampling: dict[str, Any], device: str
) -> None:
    drafts = [7, 7, 3]
    sequence = _sequence(11, said=[3, 9], **sampling)
    chunk = Chunk(sequence, len(sequence.tokens) - 1, 1 + len(drafts), 1 + len(drafts), drafts)
    together = Sampler(Uploader(device)).draw(torch.tensor([PEAKED] * 4, device=device), [chunk])
    alone = []
    for said in range(4):
        grown = _sequence(11, said=[3, 9, *drafts[:said]], **sampling)
        alone += _draw(PEAKED, [grown], device)
    assert [pick.token for pick in together] == [pick.token for pick in alone]


class EvenThenOdd:
    """A mask over 40 tokens: even ones at first, then odd ones, and so on; none after 3."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def fill(self, bits: memoryview) -> None:
        allowed = sum(1 << token for token in range(40) if self._allows(token))
        bits[:] = allowed.to_bytes(len(bits), "little")

    @staticmethod
    def fill_all(masks: list[tuple[EvenThenOdd, int]], bits: NDArray[np.uint8]) -> None:
        for mask, row in masks:
            mask.fill(bits[row].data)

    def accept(self, token: int) -> bool:
        if self._allows(token):
            self.taken.append(token)
            return True
        return False

    def rollback(self, count: int) -> None:
        del self.taken[len(self.taken) - count :]

    def _allows(self, token: int) -> bool:
        return len(self.taken) < 3 and token % 2 == len(self.taken) % 2


def _masked(seed: int, **sampling: Any) -> tuple[Sequence, EvenThenOdd]:
    sequence, mask = _sequence(seed, **sampling), EvenThenOdd()
    sequence.mask = mask
    return sequence, mask


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_mask_decides_what_may_come_next(temperature: float, device: str) -> None:
    allowed = [value if token % 2 == 0 else -math.inf for token, value in enumerate(PEAKED)]
    counts: Counter[int | None] = Counter()
    for seed in range(400):
        sequence, mask = _masked(seed, temperature=temperature)
        free = _sequence(seed, temperature=temperature)
        first, unmasked = _draw(PEAKED, [sequence, free], device)
        counts[first.token] += 1
        assert unmasked.token == _draw(PEAKED, [free], device)[0].token
        assert mask.taken == []
        assert first.token is not None
        sequence.append(first.token)
        assert mask.taken == [first.token]
    shares = dict(enumerate(_softmax(allowed)))
    if temperature:
        assert chi_square(counts, shares, 400) < chi_square_limit(20)
    else:
        assert list(counts) == [allowed.index(max(allowed))]


def test_a_mask_that_allows_nothing_is_an_error(device: str) -> None:
    sequence, mask = _masked(1)
    mask.taken = [0, 1, 2]
    (pick,) = _draw(PEAKED, [sequence], device)
    assert pick.token is None


def test_drafts_are_tried_on_the_mask_and_taken_back(device: str) -> None:
    """4, 5 may follow each other, 7 may not follow: its row's mask holds, those behind are idle."""
    sequence, mask = _masked(3, temperature=0.0)
    drafts = [4, 5, 7, 8]
    chunk = Chunk(sequence, len(sequence.tokens) - 1, 5, 5, drafts)
    picks = Sampler(Uploader(device)).draw(torch.tensor([PEAKED] * 5, device=device), [chunk])
    assert mask.taken == []
    parities = [pick.token % 2 for pick in picks[:3] if pick.token is not None]
    assert parities == [0, 1, 0]


@pytest.mark.parametrize("rows", [[0, 1, 2, 3], [1, 3]])
@pytest.mark.parametrize("columns", [40, 64, 77])
def test_a_device_bans_what_a_cpu_bans(rows: list[int], columns: int, device: str) -> None:
    """Packed bits for all rows at once, however many of the last byte count."""
    random = np.random.default_rng(columns)
    bits = random.integers(0, 256, (len(rows), -(-columns // 32) * 4), np.uint8)
    logits = torch.randn(4, columns)
    allowed = np.ones((4, columns), bool)
    allowed[rows] = np.unpackbits(bits, axis=1, count=columns, bitorder="little")
    found = logits.to(device)
    where = None if len(rows) == 4 else torch.tensor(rows, device=device)
    ban(found, where, torch.from_numpy(bits).to(device))
    assert torch.equal(found.cpu(), logits.masked_fill(torch.from_numpy(~allowed), -math.inf))
