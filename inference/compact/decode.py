"""Lays out the decoding rows of a step: sequences of like length attend together."""

from __future__ import annotations

import torch

from inference.compact.batch import DecodeGroup, Uploader
from inference.compact.rounding import KEYS_STEP, round_up
from inference.compact.scheduler import Chunk

MINUS_INFINITY = float("-inf")
# Sequences that attend in one call. On a CPU their gathered keys should stay in the cache between
# gathering and use (8 was best of 4, 8, 16, 50 at 1,088 tokens); a GPU wants one large call.
GROUP_ROWS_CPU = 8
GROUP_ROWS_CUDA = 256


def plan_decodes(
    chunks: list[Chunk], block_size: int, upload: Uploader, dtype: torch.dtype
) -> list[DecodeGroup]:
    """Groups over chunks sorted by length, whose rows are the step's first."""
    width = GROUP_ROWS_CPU if upload.device == "cpu" else GROUP_ROWS_CUDA
    groups = []
    for start in range(0, len(chunks), width):
        members = chunks[start : start + width]
        blocks_max = -(-round_up(members[-1].start + 1, KEYS_STEP) // block_size)
        tables = [_padded(chunk, blocks_max, block_size) for chunk in members]
        lengths = upload.integers([chunk.start + 1 for chunk in members])
        beyond = torch.arange(blocks_max * block_size, device=upload.device) >= lengths[:, None]
        mask = torch.zeros(beyond.shape, dtype=dtype, device=upload.device)
        groups.append(
            DecodeGroup(
                start=start,
                stop=start + len(members),
                table=upload.integers(tables),
                mask=mask.masked_fill_(beyond, MINUS_INFINITY)[:, None, None, :],
            )
        )
    return groups


def _padded(chunk: Chunk, blocks_max: int, block_size: int) -> list[int]:
    """A block table filled up with its own last block, so that no foreign data is ever read."""
    used = -(-(chunk.start + 1) // block_size)
    blocks = chunk.sequence.blocks[:used]
    return blocks + blocks[-1:] * (blocks_max - used)
