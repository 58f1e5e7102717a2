"""Decoding over copies that are kept from step to step, against gathering anew in every step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inference.compact.attention.blockwise import decode_products
from inference.compact.attention.cache import KvCache
from inference.compact.attention.copies import Copies
from inference.compact.batch.plan import plan_decodes
from inference.compact.batch.tensors import Uploader
from inference.compact.config.shape import read_shape
from inference.compact.load.placement import Placement
from inference.compact.schedule.request import Request, Sequence
from inference.compact.schedule.scheduler import Chunk
from tests.inference.compact.tiny import job_of, save_model

BLOCK = 16
# Tokens of a sequence's blocks.
ROOM = 10 * BLOCK


class Ground:
    """A cache with room for copies, and sequences of it."""

    def __init__(self, folder: Path, kv_blocks: int) -> None:
        save_model(folder)
        placement = Placement(
            device="cpu", dtype="float32", block_size=BLOCK, kv_blocks=kv_blocks, threads=None
        )
        self.cache = KvCache(read_shape(folder), placement)
        self.random = torch.Generator().manual_seed(1)
        self.cache.blocks.normal_(generator=self.random)
        self.copies = Copies(self.cache, placement)
        self.made = 0

    def sequence(self) -> Sequence:
        (sequence,) = Request(job_of([1]), block_size=BLOCK, received_us=0, seed=0).sequences
        count = ROOM // BLOCK
        sequence.blocks = [self.made * count + number for number in range(count)][::-1]
        self.made += 1
        return sequence

    def step(self, rows: list[tuple[Sequence, int]]) -> int:
        """Store a new key and value of each, and attend both ways. How many groups have copies."""
        chunks = [Chunk(sequence, start, 1, 1) for sequence, start in rows]
        slots = torch.tensor(
            [each.blocks[start // BLOCK] * BLOCK + start % BLOCK for each, start in rows]
        )
        groups = plan_decodes(chunks, BLOCK, Uploader("cpu"), torch.float32)
        attached = self.copies.attach(groups, chunks, slots)
        for layer, kept in enumerate(self.cache.kept):
            new = torch.randn(len(rows), *kept.values.shape[1:], generator=self.random)
            kept.put(slots, new)
            for group in attached:
                queries = torch.randn(group.stop - group.start, 4, 16, generator=self.random)
                found = decode_products(queries, self.cache, layer, group)
                right = decode_products(queries, self.cache, layer, replace(group, copy=None))
                torch.testing.assert_close(found, right, atol=1e-6, rtol=1e-6)
        return sum(group.copy is not None for group in attached)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path, 400)


def test_a_group_that_stays_past_its_rounded_length(ground: Ground) -> None:
    first, second = ground.sequence(), ground.sequence()
    for number in range(12):
        assert ground.step([(first, 120 + number), (second, 40 + number)]) == 1


def test_sequences_that_join_leave_and_come_back(ground: Ground) -> None:
    rows = [(ground.sequence(), start) for start in range(100, 88, -1)]
    for number in range(8):
        here = rows[number % 3 == 1 :] if number < 4 else rows[: 9 + number % 4]
        assert ground.step([(each, start + number) for each, start in here]) == 2


def test_a_sequence_that_begins_anew_is_gathered_anew(ground: Ground) -> None:
    one = ground.sequence()
    for start in (50, 51, 51, 60, 20, 21):
        one.blocks = one.blocks[::-1] if start == 20 else one.blocks
        assert ground.step([(one, start)]) == 1


def test_what_has_no_room_for_copies_is_gathered(tmp_path: Path) -> None:
    ground = Ground(tmp_path, 130)
    rows = [(ground.sequence(), 100 - number) for number in range(12)]
    for number in range(3):
        assert ground.step([(each, start + number) for each, start in rows]) == 1
