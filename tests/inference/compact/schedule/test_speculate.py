"""Lookup, the decision whether drafts pay, and that drafts change no text and no distribution."""

from __future__ import annotations

import itertools
import math
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from inference.compact.batch.tensors import Uploader
from inference.compact.options import CompactOptions
from inference.compact.run.loop import StepLoop
from inference.compact.sampling.sampler import Sampler
from inference.compact.schedule.blocks import BlockPool
from inference.compact.schedule.outputs import SampledToken, StopRules
from inference.compact.schedule.request import Request, Sequence
from inference.compact.schedule.scheduler import Chunk, Scheduler
from inference.compact.schedule.speculate import (
    LOOKBACK_TOKENS,
    PLAIN_EVERY,
    RETRY_TOKENS,
    RUNNING_MAX,
    Speculator,
    lookup,
    note_drafts,
)
from inference.contract.frames import Step
from tests.inference.compact.sampling.chi import chi_square, chi_square_limit
from tests.inference.compact.tiny import (
    Harness,
    collect,
    continuation,
    job_of,
    prompt_of,
    save_model,
    tokens_of,
)


def _packed(tokens: list[int]) -> bytearray:
    return bytearray(array("I", tokens).tobytes())


@pytest.mark.parametrize(
    ("tokens", "count", "expected"),
    [
        ([1, 2, 3, 9, 1, 2], 4, [3, 9, 1, 2]),
        ([1, 2, 3, 9, 1, 2], 2, [3, 9]),
        ([1, 2, 3, 1, 2, 4, 1, 2], 1, [4]),
        # The longer ending decides: after 7, 1, 2 came 3, though 1, 2 was followed by 4 later.
        ([7, 1, 2, 3, 1, 2, 4, 7, 1, 2], 1, [3]),
        ([5, 5, 5, 5, 5, 5], 3, [5]),
        ([1, 2, 3, 4], 4, []),
        ([1], 4, []),
        ([], 4, []),
        # The bytes of 0, 1 stand across the border of 256, 0 as well, but not the tokens.
        ([256, 0, 7, 1, 0], 2, []),
    ],
)
def test_lookup(tokens: list[int], count: int, expected: list[int]) -> None:
    assert lookup(_packed(tokens), count) == expected


def test_lookup_goes_back_a_bounded_way() -> None:
    near = [1, 2, 3, *[0] * (LOOKBACK_TOKENS - 5), 1, 2]
    far = [1, 2, 3, *[0] * LOOKBACK_TOKENS, 1, 2]
    assert lookup(_packed(near), 1) == [3]
    assert lookup(_packed(far), 1) == []


def _sequence(tokens: list[int], **sampling: Any) -> Sequence:
    request = Request(job_of(tokens, **sampling), block_size=32, received_us=0, seed=1)
    return request.sequences[0]


REPEATING = [1, 2, 3, 4, 5, 6, 1, 2, 3]


def _taught(cost: float) -> Speculator:
    """A speculator that has seen a draft cost so many tokens' time, with one sequence decoding."""
    speculator = Speculator(4, always=False)
    for _ in range(200):
        speculator.measure(1, 0, 1000)
        speculator.measure(1, 4, round(1000 * (1 + 4 * cost)))
    return speculator


def test_drafts_end_when_they_do_not_pay_and_are_tried_again() -> None:
    speculator = _taught(cost=0.2)
    sequence = _sequence(REPEATING, max_tokens=500)
    tries = 0
    while speculator.propose(sequence, 10, 1):
        note_drafts(sequence, 4, 0)
        tries += 1
    assert 1 <= tries < 10
    for _ in range(RETRY_TOKENS - 1):
        sequence.append(7)
    assert speculator.propose(sequence, 10, 1) == []
    sequence.append(7)
    assert speculator.propose(sequence, 10, 1) != []


def test_drafts_go_on_while_they_pay() -> None:
    speculator = _taught(cost=0.2)
    sequence = _sequence(REPEATING, max_tokens=500)
    for _ in range(100):
        note_drafts(sequence, 4, 1)
        assert speculator.propose(sequence, 10, 1) == [4, 5, 6, 1]


def test_what_drafts_cost_decides_at_the_same_acceptance() -> None:
    sequence = _sequence(REPEATING, max_tokens=500)
    note_drafts(sequence, 4, 1)
    assert _taught(cost=0.05).propose(sequence, 10, 1)
    assert not _taught(cost=0.5).propose(sequence, 10, 1)


def test_always_neither_measures_nor_compares_but_keeps_the_bound_of_the_batch() -> None:
    speculator = Speculator(4, always=True)
    sequence = _sequence(REPEATING, max_tokens=500)
    for _ in range(50):
        note_drafts(sequence, 4, 0)
    assert speculator.propose(sequence, 10, 1) == [4, 5, 6, 1]
    assert speculator.begin(RUNNING_MAX)
    assert not speculator.begin(RUNNING_MAX + 1)


def test_auto_measures_a_plain_step_first_and_then_now_and_then() -> None:
    speculator = Speculator(4, always=False)
    assert not speculator.begin(1)
    speculator.measure(1, 0, 1000)
    begun = [speculator.begin(1) for _ in range(PLAIN_EVERY * 2)]
    assert begun.count(False) == 2


def test_one_slow_step_does_not_decide() -> None:
    speculator = _taught(cost=0.05)
    speculator.measure(1, 4, 10**9)
    speculator.measure(1, 0, 10**9)
    sequence = _sequence(REPEATING, max_tokens=500)
    for _ in range(20):
        note_drafts(sequence, 4, 3)
    assert speculator.propose(sequence, 10, 1)


def test_interrupted_steps_do_not_hide_what_a_draft_costs() -> None:
    """Every third step takes ten times as long, with and without drafts."""
    speculator = Speculator(4, always=False)
    for number in range(600):
        slow = 10 if number % 3 == 0 else 1
        speculator.measure(2, 0, 1000 * slow)
        speculator.measure(2, 5, 1500 * slow)
    assert speculator.cost(2) == pytest.approx(0.5 * 2 / 5, rel=0.3)


@pytest.mark.parametrize(("room", "max_tokens", "count"), [(2, 99, 2), (9, 3, 2), (0, 99, 0)])
def test_drafts_stay_within_room_and_max_tokens(room: int, max_tokens: int, count: int) -> None:
    sequence = _sequence(REPEATING, max_tokens=max_tokens)
    assert len(Speculator(4, always=True).propose(sequence, room, 1)) == count


# A chain of four states that likes to repeat itself, so that about half of all drafts are right.
CHAIN = torch.tensor(
    [[0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.6, 0.2], [0.3, 0.1, 0.1, 0.5], [0.6, 0.2, 0.1, 0.1]]
)
WALKS = 2500


class ChainModel:
    """The next token depends on the last one alone; the sampler is the real one."""

    def __init__(self, chain: torch.Tensor) -> None:
        self.sampler = Sampler(Uploader("cpu"))
        self.logits = chain.log()

    def run(self, chunks: list[Chunk]) -> list[SampledToken]:
        """Rows of the chain's table, drawn from."""
        drawn = [chunk for chunk in chunks if chunk.sampled_rows]
        rows = [token for chunk in drawn for token in chunk.tokens[-chunk.sampled_rows :]]
        return self.sampler.draw(self.logits[torch.tensor(rows)], drawn)


def _loop(chain: torch.Tensor, speculate: str) -> StepLoop:
    options = CompactOptions(kv_blocks=64, running_max=8, speculate=speculate)
    ticks = itertools.count()
    scheduler = Scheduler(BlockPool(64, 32), options)
    return StepLoop(ChainModel(chain), scheduler, StopRules(frozenset(), 4096), lambda: next(ticks))


def _walks(speculate: str, walks: int, **sampling: Any) -> tuple[list[list[int]], list[Step]]:
    """Texts of many seeds after one prompt, eight at a time, and the steps that made them."""
    loop = _loop(CHAIN, speculate)
    prompt = [0, 1, 2, 3, 0, 1, 2, 0]
    for seed in range(walks):
        asked = {"temperature": 1.0, **sampling}
        loop.accept(job_of(prompt, seed, seed=seed, **asked), loop.clock_us())
    steps = _run(loop)
    found = collect(steps)
    return [tokens_of(found[seed, 0]) for seed in range(walks)], steps


def _run(loop: StepLoop) -> list[Step]:
    steps = []
    while loop.has_work:
        steps.append(loop.step()[0])
    return steps


@pytest.mark.parametrize(
    "sampling",
    [{}, {"top_p": 0.85}, {"top_k": 2}, {"frequency_penalty": 0.7, "presence_penalty": 0.3}],
    ids=str,
)
def test_drafts_change_no_text(sampling: dict[str, Any]) -> None:
    plain, without = _walks("off", 200, max_tokens=8, **sampling)
    drafted, steps = _walks("on", 200, max_tokens=8, **sampling)
    assert drafted == plain
    accepted, guessed = sum(each.accepted for each in steps), sum(each.drafted for each in steps)
    assert 0.05 * guessed < accepted < 0.95 * guessed
    assert len(steps) < len(without)


def _expected(chain: torch.Tensor, start: int) -> dict[tuple[int, ...], float]:
    """Probabilities of the first three tokens after `start`."""
    found = {}
    for path in itertools.product(range(4), repeat=3):
        states = (start, *path)
        found[path] = math.prod(float(chain[a, b]) for a, b in itertools.pairwise(states))
    return found


def test_texts_with_drafts_follow_the_distribution() -> None:
    texts, _ = _walks("on", WALKS, max_tokens=3)
    counts = Counter(tuple(text) for text in texts)
    limit = chi_square_limit(cells=4**3)
    assert chi_square(counts, _expected(CHAIN, 0), WALKS) < limit
    # The same check sees a chain that differs by a hundredth here and there.
    skewed = CHAIN + 0.03 * torch.tensor([1.0, -1.0, 1.0, -1.0])
    assert chi_square(counts, _expected(skewed, 0), WALKS) > limit


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("speculate")


def test_greedy_equals_the_reference(folder: Path, device: str) -> None:
    """A prompt that repeats itself makes the model repeat itself, and drafts come true."""
    oracle = save_model(folder)
    prompts = [prompt_of(15, seed) * 4 for seed in range(4)]
    harness = Harness(
        folder, device=device, kv_blocks=64, block_size=16, speculate="on", step_tokens=64
    )
    jobs = [job_of(prompt, number, max_tokens=60) for number, prompt in enumerate(prompts)]
    outputs = harness.run(*jobs)
    for number, prompt in enumerate(prompts):
        assert tokens_of(outputs[number, 0]) == continuation(oracle, prompt, 60)
        assert outputs[number, 0][-1].usage.completion_tokens == 60
    assert sum(step.accepted for step in harness.steps) > 0
    assert sum(step.drafted for step in harness.steps) > sum(s.accepted for s in harness.steps)
    assert harness.pool.available == 64
    # Blocks that drafts filled are found again, with the tokens that were accepted.
    follow_up = prompts[0] + tokens_of(outputs[0, 0]) + [5]
    again = harness.run(job_of(follow_up, number=9))
    assert again[9, 0][-1].usage.cached_tokens == (len(follow_up) - 2) // 16 * 16
    assert tokens_of(again[9, 0]) == continuation(oracle, follow_up, 8)


def test_drafts_end_with_the_context(tmp_path: Path) -> None:
    """Its last block has room for more tokens than the model has positions."""
    save_model(tmp_path, max_position_embeddings=100)
    harness = Harness(tmp_path, kv_blocks=64, block_size=32, speculate="on")
    # The first token drawn stands in the prompt already, with four tokens behind it to draft.
    prompt = [7, 5, 1, 2, 3, 4] + [9] * 90 + [7]
    outputs = harness.run(job_of(prompt, max_tokens=1000, logit_bias={5: 100.0}))[1, 0]
    assert len(prompt + tokens_of(outputs)) == 100
    assert outputs[-1].finish == "length"
    assert sum(step.drafted for step in harness.steps) == 1


def test_an_end_token_among_the_drafts_ends_the_text() -> None:
    """The text walks round a ring with no other way, so that its end token is drafted, too."""
    ring = torch.eye(4).roll(1, dims=1) + 1e-9
    loop = _loop(ring, "on")
    job = job_of([0, 1, 2, 3, 0, 1], max_tokens=20)
    loop.accept(replace(job, stop_tokens=[0]), loop.clock_us())
    steps = _run(loop)
    outputs = collect(steps)[1, 0]
    assert tokens_of(outputs) == [2, 3]
    assert outputs[-1].finish == "stop"
    assert outputs[-1].usage.completion_tokens == 3
    assert (sum(step.drafted for step in steps), sum(step.accepted for step in steps)) == (4, 2)
    assert loop.scheduler.pool.available == 64
