"""Runs: the same seed gives the same figures, all policies get the same arrivals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from benchmarks.fleet.bars import leads, means, misses
from benchmarks.fleet.chains import BLOCK_TOKENS, Request
from benchmarks.fleet.decision import decider
from benchmarks.fleet.fleet import Run
from benchmarks.fleet.journal import Journal
from benchmarks.fleet.policies.registry import OURS, POLICIES
from benchmarks.fleet.task import Cell, Task, pooled, simulate
from benchmarks.fleet.workloads import WORKLOADS, Traffic

SMALL = Cell("burst", 0.5, nodes=2, warm_s=3.0, span_s=5.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_task_gives_the_same_figures(policy: str) -> None:
    task = Task(SMALL, policy, seed=3)
    run = simulate(task)
    assert run.ttft_s and min(run.ttft_s) > 0
    assert simulate(task) == run
    assert simulate(replace(task, seed=4)) != run


def test_requests_due_are_all_counted_for_every_policy() -> None:
    counts = {len(simulate(Task(SMALL, policy, seed=3)).ttft_s) for policy in POLICIES}
    assert len(counts) == 1


@pytest.mark.parametrize("name", WORKLOADS)
def test_prompts_of_a_workload_fit_their_segments(name: str) -> None:
    traffic = Traffic(nodes=2, rate=10.0, span_s=60.0, working_set=0.5)
    requests = WORKLOADS[name].make(np.random.default_rng(1), traffic)
    again = WORKLOADS[name].make(np.random.default_rng(1), traffic)
    assert [each.at for each in requests] == sorted(each.at for each in again)
    turns: list[Request] = []
    for first in requests:
        turn: Request | None = first
        while turn is not None:
            turns.append(turn)
            turn = turn.follow
    assert 300 < len(turns) < 900
    for each in turns:
        shared = sum(segment.blocks for segment in each.path[:-1]) * BLOCK_TOKENS
        assert shared < each.prompt_tokens
        assert each.end_blocks <= each.path[-1].blocks
        assert len(each.chain()) == each.prompt_tokens // BLOCK_TOKENS


def test_several_gateways_serve_what_one_does() -> None:
    one = simulate(Task(SMALL, OURS, seed=3))
    four = simulate(Task(SMALL, OURS, seed=3, gateways=4))
    assert len(four.ttft_s) == len(one.ttft_s)
    assert four.unserved == 0
    assert four != one


def test_pooled_percentiles_are_over_all_samples() -> None:
    every = pooled([Run([0.1] * 98, 10, 5), Run([0.9] * 2, 30, 5)])
    assert every.ttft_ms(95) == pytest.approx(100)
    assert every.hit_rate == 0.25


def test_a_campaign_goes_on_after_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).keep("a", Run([0.1], 2, 1))
    with path.open("a") as file:
        file.write('{"key": "b", "ru')
    journal = Journal(path)
    assert journal.runs == {"a": Run([0.1], 2, 1)}
    journal.keep("c", Run([0.2], 2, 1))
    assert list(Journal(path).runs) == ["a", "c"]


def test_bars_leave_out_policies_that_have_collapsed() -> None:
    ours = {"hit_rate": 0.80, "ttft_p95_ms": 300.0}
    table = {
        "one": {OURS: ours, "close": {"hit_rate": 0.81, "ttft_p95_ms": 290.0}},
        "two": {OURS: ours, "close": {"hit_rate": 0.90, "ttft_p95_ms": 2500.0}},
    }
    assert misses(table) == ["one: hit rate is 0.988 x that of close"]
    assert not leads(table)
    table["two"]["close"] = {"hit_rate": 0.70, "ttft_p95_ms": 2500.0}
    assert leads(table)
    assert means(table)["close"]["hit_rate"] == pytest.approx((0.81 * 0.70) ** 0.5)


def test_the_timed_decision_is_a_real_one() -> None:
    decide = decider(8, Random(1))
    assert {decide(number) for number in range(32)} <= set(range(8))
