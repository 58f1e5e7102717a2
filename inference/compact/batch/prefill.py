"""Lays out the prompt chunks of a step: each attends to its own past and, causally, to itself."""

import torch

from inference.compact.batch.decode import first_block
from inference.compact.batch.padding import KEYS_STEP, round_up
from inference.compact.batch.tensors import PrefillSpan, Uploader
from inference.compact.schedule.scheduler import Chunk


def plan_prefills(
    chunks: list[Chunk],
    first_row: int,
    block_size: int,
    upload: Uploader,
    mask_dtype: torch.dtype | None,
    window: int | None = None,
) -> list[PrefillSpan]:
    """One span per chunk, rows in the order of the chunks from `first_row` on; None: no masks."""
    spans = []
    for chunk in chunks:
        end = chunk.start + chunk.count
        first = first_block(chunk.start, window, block_size)
        length = end - first * block_size
        blocks = chunk.sequence.blocks[first : -(-end // block_size)]
        gathered = -(-round_up(length, KEYS_STEP) // block_size)
        blocks += blocks[-1:] * (gathered - len(blocks))
        seen = window if window is not None and window < length else None
        mask = None
        if mask_dtype is not None and (length > chunk.count or seen is not None):
            mask = lower_right(chunk.count, length, seen, upload.device, mask_dtype)
        spans.append(
            PrefillSpan(
                start=first_row,
                stop=first_row + chunk.count,
                length=length,
                window=seen,
                table=upload.integers([blocks]),
                lengths=upload.integers([length]),
                mask=mask,
            )
        )
        first_row += chunk.count
    return spans


def lower_right(
    rows: int, length: int, window: int | None, device: torch.device | str, dtype: torch.dtype
) -> torch.Tensor:
    """`[rows, length]`: zero where row i sees a key, up to its own and within the window."""
    own = torch.arange(length - rows, length, device=device)[:, None]
    keys = torch.arange(length, device=device)
    hidden = keys > own
    if window is not None:
        hidden |= keys <= own - window
    mask = torch.zeros(hidden.shape, dtype=dtype, device=device)
    return mask.masked_fill_(hidden, float("-inf"))
