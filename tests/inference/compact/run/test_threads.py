"""Steps of torch's operators run on as many threads as took less for their size."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from inference.compact.run.threads import FIRST, TRY_EVERY, Threads, keep_memory

WHOLE = 3
# Together more than glibc keeps by itself.
TENSOR_BYTES, TENSORS = 2 << 20, 40


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class _Machine:
    """Steps that take what the table says: seconds by rows and threads."""

    def __init__(self, seconds: dict[tuple[int, int], float]) -> None:
        self.seconds = seconds
        self.now_s = 0.0
        self.threads = Threads(WHOLE, lambda: self.now_s)

    def step(self, rows: int) -> int:
        """The threads that it ran on."""

        def computed() -> int:
            threads = torch.get_num_threads()
            self.now_s += self.seconds[rows, threads]
            return threads

        return self.threads.run(computed, rows)

    def steps(self, rows: int, count: int) -> list[int]:
        return [self.step(rows) for _ in range(count)]


def test_each_size_settles_on_what_takes_less() -> None:
    machine = _Machine({(1, 1): 1.0, (1, WHOLE): 2.0, (500, 1): 50.0, (500, WHOLE): 30.0})
    for rows in (1, 500):
        machine.steps(rows, 2 * FIRST)
    for rows, right in ((1, 1), (500, WHOLE), (1, 1)):
        assert machine.steps(rows, 20) == [right] * 20


def test_it_follows_a_machine_that_changes() -> None:
    machine = _Machine({(8, 1): 1.0, (8, WHOLE): 2.0})
    machine.steps(8, TRY_EVERY - 1)
    machine.seconds[8, WHOLE] = 0.1
    machine.steps(8, 20 * TRY_EVERY + 2)
    assert machine.steps(8, 3) == [WHOLE] * 3
    machine.seconds[8, WHOLE] = 9.0
    assert machine.steps(8, TRY_EVERY // 2)[-1] == 1


def test_the_other_number_is_tried_now_and_then() -> None:
    machine = _Machine({(8, 1): 1.0, (8, WHOLE): 2.0})
    found = machine.steps(8, 10 * TRY_EVERY)
    assert found.count(WHOLE) == 9 + FIRST


def test_memory_that_a_step_frees_is_kept_for_the_next_one() -> None:
    keep_memory()
    made = [torch.ones(TENSOR_BYTES, dtype=torch.uint8) for _ in range(TENSORS)]
    held = _resident_bytes()
    del made
    assert held - _resident_bytes() < TENSOR_BYTES


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
