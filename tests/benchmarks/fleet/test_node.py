"""The virtual node: its times are those of the roofline, and no block is lost or made up."""

from __future__ import annotations

import math

import pytest

from benchmarks.fleet.cache import NodeCache
from benchmarks.fleet.chains import BLOCK_TOKENS, Request, Segment, Segments
from benchmarks.fleet.node import Gpu, VirtualNode


def request(path: tuple[Segment, ...], prompt: int, answer: int, at: float = 0.0) -> Request:
    return Request(at, 0, path, prompt, answer)


def lone(segments: Segments, prompt: int, answer: int) -> Request:
    return request((segments.make((prompt + answer) // BLOCK_TOKENS + 1),), prompt, answer)


def work_off(node: VirtualNode) -> None:
    while node.wakes_at != math.inf:
        node.finish_steps()


def test_the_first_token_of_an_idle_node_takes_what_the_roofline_says() -> None:
    gpu = Gpu()
    node = VirtualNode(0, gpu)
    asked = lone(Segments(), 5000, 10)
    node.submit(asked, 1.0)
    work_off(node)
    steps = gpu.step_s(2048, 1, 0) + gpu.step_s(2048, 1, 2048) + gpu.step_s(5000 - 4096, 1, 4096)
    assert asked.first_at == pytest.approx(1.0 + steps)


def test_decoding_together_takes_as_long_as_step_by_step() -> None:
    gpu = Gpu()
    node = VirtualNode(0, gpu)
    asked = lone(Segments(), 100, 50)
    node.submit(asked, 0.0)
    work_off(node)
    one_by_one = sum(gpu.step_s(1, 1, 100 + number) for number in range(49))
    assert asked.ended_at - asked.first_at == pytest.approx(one_by_one)


def test_a_newcomer_joins_at_the_end_of_the_step_that_runs() -> None:
    gpu = Gpu()
    node = VirtualNode(0, gpu)
    segments = Segments()
    first, second = lone(segments, 100, 500), lone(segments, 100, 5)
    node.submit(first, 0.0)
    node.finish_steps()
    came = first.first_at + 20.5 * gpu.step_s(1, 1, 100)
    node.submit(second, came)
    assert came < node.wakes_at < came + gpu.step_s(1, 1, 200)


def test_the_same_prompt_again_is_cached_but_for_its_last_token() -> None:
    node = VirtualNode(0, Gpu())
    segments = Segments()
    prefix = segments.make(10)
    own = segments.make(1)
    for asked in (request((prefix, own), 640, 2), request((prefix, own), 640, 2)):
        node.submit(asked, node.wakes_at if node.wakes_at != math.inf else 0.0)
        work_off(node)
    assert asked.cached_tokens == 639


def test_blocks_are_conserved_and_slots_never_exceeded() -> None:
    gpu = Gpu(running_max=4, kv_blocks=200)
    node = VirtualNode(0, gpu)
    segments = Segments()
    groups = [segments.make(20 + 5 * number) for number in range(6)]
    asked = []
    for number in range(60):
        own = segments.make(20)
        group = groups[number % 6]
        prompt = group.blocks * BLOCK_TOKENS + 100 + 11 * number
        asked.append(request((group, own), prompt, 5 + number % 40))
        node.submit(asked[-1], 0.0)
    while node.wakes_at != math.inf:
        node.finish_steps()
        assert node.running <= gpu.running_max
        assert node.queued_tokens >= 0
        assert node.cache.free_blocks >= 0
        assert sum(node.cache.held.values()) + node.cache.free_blocks <= gpu.kv_blocks
    assert all(each.ended_at > 0 for each in asked)
    assert sum(node.cache.held.values()) + node.cache.free_blocks == gpu.kv_blocks
    assert node.cache.unused_blocks == sum(node.cache.held.values())
    assert node.queued_tokens == 0


def test_what_was_told_adds_up_to_what_is_held() -> None:
    node = VirtualNode(0, Gpu(kv_blocks=120))
    segments = Segments()
    told: dict[Segment, int] = {}
    for number in range(30):
        node.submit(lone(segments, 1000 + 50 * number, 30), 0.0)
    while node.wakes_at != math.inf:
        for stored, segment, start, stop in node.finish_steps().changes:
            assert told.get(segment, 0) == (start if stored else stop)
            told[segment] = stop if stored else start
    assert {segment: blocks for segment, blocks in told.items() if blocks} == node.cache.held


def test_the_tail_of_the_longest_unused_chain_goes_first() -> None:
    cache = NodeCache(30)
    segments = Segments()
    prefix, left, right = segments.make(10), segments.make(5), segments.make(5)
    for own, ended in ((left, 1.0), (right, 2.0)):
        asked = request((prefix, own), 15 * BLOCK_TOKENS, 1)
        cache.pin(asked.path)
        assert cache.reserve(15 - asked.matched_blocks(cache.held))
        cache.store(asked, 15)
        cache.unpin(asked.path, ended)
    assert cache.reserve(10 + 5 + 2)
    assert cache.held == {prefix: 10, right: 3}
    assert cache.oldest_used_at() == 2.0
    assert not cache.reserve(14)
