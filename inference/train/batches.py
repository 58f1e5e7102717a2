"""Packs dialogues into rows. The batch of a step depends on the seed and the step alone.

So a resumed run sees what an uninterrupted one would see, without saving any state of the data.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from inference.train.data.compose import training_stream
from inference.train.data.dialogue import Dialogue
from inference.train.schedule import Stage
from inference.train.tokenizer import Encoded, Encoder

MISSES_MAX = 24
DIALOGUES_MAX = 20_000
STEP_SEEDS = 1_000_003


@dataclass(frozen=True)
class Batch:
    """Token ids, the id that follows each, and the positions that count for the loss."""

    ids: Tensor
    targets: Tensor
    said: Tensor


class Rows:
    """Rows of one length that are filled with whole dialogues; nothing is cut."""

    def __init__(self, stage: Stage, pad: int) -> None:
        self.room = [stage.length + 1] * stage.rows
        self.ids = torch.full((stage.rows, stage.length + 1), pad, dtype=torch.long)
        self.said = torch.zeros((stage.rows, stage.length + 1), dtype=torch.bool)

    def place(self, encoded: Encoded) -> bool:
        """Put a dialogue into the first row that has room; False when none has."""
        size = len(encoded.ids)
        for row, room in enumerate(self.room):
            if size <= room:
                start = self.ids.shape[1] - room
                self.ids[row, start : start + size] = torch.tensor(encoded.ids)
                self.said[row, start : start + size] = torch.tensor(encoded.said)
                self.room[row] -= size
                return True
        return False

    def batch(self) -> Batch:
        """The rows as inputs and targets, shifted by one."""
        return Batch(self.ids[:, :-1], self.ids[:, 1:], self.said[:, 1:])


def fill(encoder: Encoder, stage: Stage, stream: Iterator[Dialogue]) -> Batch:
    """Draw dialogues until the rows are nearly full; those that do not fit are left out."""
    rows, misses = Rows(stage, encoder.pad), 0
    for dialogue in islice(stream, DIALOGUES_MAX):
        if not rows.place(encoder.encode(dialogue)):
            misses += 1
        if misses == MISSES_MAX:
            break
    return rows.batch()


def batch_of_step(encoder: Encoder, stage: Stage, *, seed: int, step: int) -> Batch:
    stream = training_stream(
        seed * STEP_SEEDS + step,
        long_share=stage.long_share,
        in_order_share=stage.in_order_share,
    )
    return fill(encoder, stage, stream)
