"""Single decisions of the scheduler, each on a small scene."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from inference.compact.options import CompactOptions
from inference.compact.run.loop import StepLoop
from inference.contract.blocks import chain_hashes, split_hashes
from tests.inference.compact.schedule.shadow import shadow_loop
from tests.inference.compact.tiny import collect, job_of


def _loop(**options: Any) -> StepLoop:
    defaults: dict[str, Any] = {"block_size": 4, "kv_blocks": 32, "step_tokens": 16}
    return shadow_loop(CompactOptions(**{**defaults, "running_max": 8, **options}), 1024)


def _accept(loop: StepLoop, number: int, length: int, **fields: Any) -> None:
    salt = fields.pop("salt", b"alice")
    loop.accept(job_of([1 + number % 6] * length, number, salt=salt, **fields), loop.clock_us())


def test_decodes_come_before_prefills_and_cap_them() -> None:
    loop = _loop(mixed_prefill_tokens=5)
    _accept(loop, 1, 3)
    loop.step()
    _accept(loop, 2, 30)
    chunks = loop.scheduler.schedule(0)
    assert [chunk.count for chunk in chunks] == [1, 5]


def test_first_come_first_served_within_a_priority() -> None:
    loop = _loop(running_max=1)
    for number, priority in ((1, 0), (2, 0), (3, 1)):
        job = job_of([number] * 3, number, max_tokens=1)
        loop.accept(replace(job, priority=priority), loop.clock_us())
    order = [next(iter(collect([loop.step()[0]])))[0] for _ in range(3)]
    assert order == [3, 1, 2]


def test_admission_holds_blocks_back() -> None:
    loop = _loop(kv_blocks=64, step_tokens=256)
    _accept(loop, 1, 4 * 20)
    _accept(loop, 2, 4 * 42)
    loop.step()
    # 64 - 20 = 44 blocks are free and 42 wanted, but 2 of every 64 are held back.
    assert len(loop.scheduler.running) == 2
    loop = _loop(kv_blocks=64, step_tokens=256)
    _accept(loop, 1, 4 * 20)
    _accept(loop, 2, 4 * 43)
    loop.step()
    assert len(loop.scheduler.running) == 1


def test_the_last_in_is_preempted() -> None:
    loop = _loop(kv_blocks=6)
    _accept(loop, 1, 8, max_tokens=12)
    _accept(loop, 2, 8, max_tokens=12)
    while not loop.scheduler.preemptions:
        loop.step()
    assert [each.request.job.request[-1] for each in loop.scheduler.running] == [1]
    assert loop.scheduler.queue.peek().request.job.request[-1] == 2


def test_the_whole_prompt_is_never_taken_from_the_cache() -> None:
    loop = _loop()
    _accept(loop, 1, 8, max_tokens=1)
    loop.step()
    _accept(loop, 7, 8, max_tokens=1)
    (output,) = loop.step()[0].outputs
    assert output.usage.cached_tokens == 4


def test_salts_do_not_share() -> None:
    loop = _loop()
    _accept(loop, 1, 13, max_tokens=1, salt=b"alice")
    loop.step()
    _accept(loop, 7, 13, max_tokens=1, salt=b"bob")
    (bob,) = loop.step()[0].outputs
    _accept(loop, 13, 13, max_tokens=1, salt=b"alice")
    (alice,) = loop.step()[0].outputs
    assert (bob.usage.cached_tokens, alice.usage.cached_tokens) == (0, 12)


def test_a_forged_hash_does_not_hit() -> None:
    """A hit compares tokens: hashes that claim another prompt's blocks get nothing."""
    loop = _loop()
    _accept(loop, 1, 13, max_tokens=1)
    loop.step()
    forged = b"".join(chain_hashes([2] * 13, 4, b"alice"))
    job = job_of([5] * 13, 2, salt=b"alice", max_tokens=1)
    loop.accept(replace(job, hashes=forged), loop.clock_us())
    (output,) = loop.step()[0].outputs
    assert output.usage.cached_tokens == 0


def test_chain_tails_are_evicted_first() -> None:
    loop = _loop(kv_blocks=8)
    _accept(loop, 1, 16, max_tokens=1)
    first = loop.step()[1]
    chain = chain_hashes([2] * 16, 4, b"alice")
    assert first is not None and split_hashes(first.stored) == chain
    _accept(loop, 2, 20, max_tokens=1)
    later = [loop.step()[1], loop.step()[1]]
    removed = [gone for kv in later if kv is not None for gone in split_hashes(kv.removed)]
    assert removed == chain[3:]


def test_events_are_net_and_numbered() -> None:
    loop = _loop()
    _accept(loop, 1, 9, max_tokens=1)
    _, first = loop.step()
    _accept(loop, 2, 5, max_tokens=1)
    _, second = loop.step()
    assert first is not None and second is not None
    assert (first.seq, second.seq) == (1, 2)
    assert first.stored == b"".join(chain_hashes([2] * 9, 4, b"alice"))
    assert first.removed == b""


def test_deadline_ends_waiting_and_running_requests() -> None:
    loop = _loop(running_max=1)
    for number in (1, 2):
        job = job_of([number] * 5, number, max_tokens=100)
        loop.accept(replace(job, deadline_ms=1), 0)
    loop.step()
    outputs = []
    while loop.has_work:
        outputs += loop.step()[0].outputs
        loop.clock_us = lambda: 1_000_000
    assert [output.finish for output in outputs if output.finish] == ["cancelled", "cancelled"]
    assert loop.scheduler.pool.available == 32


def test_load_is_reported() -> None:
    loop = _loop(running_max=1, step_tokens=16)
    _accept(loop, 1, 20, max_tokens=2)
    _accept(loop, 2, 30, max_tokens=2)
    report, _ = loop.step()
    assert (report.running, report.waiting, report.waiting_tokens) == (1, 1, 4 + 30)
    assert report.kv_free_blocks == 32 - 5
    loop.step()
    report, _ = loop.step()
    assert report.oldest_block_s > 0
