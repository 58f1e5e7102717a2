"""Lays out the prompt chunks of a step: each attends to its own past and, causally, to itself."""

from __future__ import annotations

import torch

from inference.compact.batch import PrefillSpan, Uploader
from inference.compact.rounding import KEYS_STEP, round_up
from inference.compact.scheduler import Chunk


def plan_prefills(
    chunks: list[Chunk], first_row: int, block_size: int, upload: Uploader, dtype: torch.dtype
) -> list[PrefillSpan]:
    """One span per chunk, rows in the order of the chunks from `first_row` on."""
    spans = []
    masked = upload.device != "cpu"
    for chunk in chunks:
        length = chunk.start + chunk.count
        blocks = chunk.sequence.blocks[: -(-length // block_size)]
        gathered = -(-round_up(length, KEYS_STEP) // block_size)
        blocks += blocks[-1:] * (gathered - len(blocks))
        spans.append(
            PrefillSpan(
                start=first_row,
                stop=first_row + chunk.count,
                length=length,
                table=upload.integers([blocks]),
                mask=lower_right(chunk, upload, dtype) if masked and chunk.start else None,
            )
        )
        first_row += chunk.count
    return spans


def lower_right(chunk: Chunk, upload: Uploader, dtype: torch.dtype) -> torch.Tensor:
    """Row i sees keys up to `start + i`; minus infinity elsewhere."""
    size = (chunk.count, chunk.start + chunk.count)
    blocked = torch.full(size, float("-inf"), dtype=dtype, device=upload.device)
    return blocked.triu_(chunk.start + 1)
