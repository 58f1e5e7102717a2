"""Lays out the decoding rows of a step: sequences of like length attend together."""

import torch

from inference.compact.batch.padding import KEYS_STEP, round_up
from inference.compact.batch.tensors import DecodeGroup, Uploader
from inference.compact.schedule.scheduler import Chunk

MINUS_INFINITY = float("-inf")
# Sequences that attend in one call. On a CPU their gathered keys should stay in the cache between
# gathering and use (8 was best of 4, 8, 16, 50 at 1,088 tokens); a GPU wants one large call.
GROUP_ROWS_CPU = 8
GROUP_ROWS_CUDA = 256


def plan_decodes(
    chunks: list[Chunk],
    block_size: int,
    upload: Uploader,
    mask_dtype: torch.dtype | None,
    window: int | None = None,
) -> list[DecodeGroup]:
    """Groups over chunks sorted by length, whose rows are the step's first; None: no masks."""
    width = GROUP_ROWS_CPU if upload.device == "cpu" else GROUP_ROWS_CUDA
    groups = []
    for start in range(0, len(chunks), width):
        members = chunks[start : start + width]
        firsts = [first_block(chunk.start, window, block_size) for chunk in members]
        rests = [
            chunk.start + 1 - first * block_size
            for chunk, first in zip(members, firsts, strict=True)
        ]
        count = -(-round_up(max(rests), KEYS_STEP) // block_size)
        tables = [
            _padded(chunk, first, count, block_size)
            for chunk, first in zip(members, firsts, strict=True)
        ]
        lengths = upload.integers(rests)
        mask = None
        if mask_dtype is not None:
            mask = decode_mask(lengths, count * block_size, window, mask_dtype)
        groups.append(
            DecodeGroup(
                start=start,
                stop=start + len(members),
                window=window,
                table=upload.integers(tables),
                lengths=lengths,
                mask=mask,
            )
        )
    return groups


def first_block(position: int, window: int | None, block_size: int) -> int:
    """The first block with keys that a row at this position sees."""
    return 0 if window is None else max(0, position + 1 - window) // block_size


def decode_mask(
    lengths: torch.Tensor, keys: int, window: int | None, dtype: torch.dtype
) -> torch.Tensor:
    """`[rows, 1, 1, keys]`: minus infinity where a row does not see a key."""
    places = torch.arange(keys, device=lengths.device)
    hidden = places >= lengths[:, None]
    if window is not None:
        hidden |= places < lengths[:, None] - window
    mask = torch.zeros(hidden.shape, dtype=dtype, device=lengths.device)
    return mask.masked_fill_(hidden, MINUS_INFINITY)[:, None, None, :]


def _padded(chunk: Chunk, first: int, count: int, block_size: int) -> list[int]:
    """A block table padded with its own last block, so that no other sequence's data is read."""
    blocks = chunk.sequence.blocks[first : -(-(chunk.start + 1) // block_size)]
    return blocks + blocks[-1:] * (count - len(blocks))
