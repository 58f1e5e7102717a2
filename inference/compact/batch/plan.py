"""Lays out a step's rows for attention: decoding sequences of like length attend together, each
prompt chunk to its own past and, causally, to itself.
"""

from itertools import accumulate
from typing import NamedTuple

import torch

from inference.compact.batch.tensors import (
    KEYS_STEP,
    DecodeGroup,
    PrefillSpan,
    SpanBatch,
    Uploader,
    round_up,
)
from inference.compact.schedule.scheduler import Chunk

# Sequences that attend in one call. On a CPU their gathered keys should stay in the cache between
# gathering and use (8 was best of 4, 8, 16, 50 at 1,088 tokens); a GPU wants one large call.
GROUP_ROWS_CPU = 8
GROUP_ROWS_CUDA = 256


class Rows(NamedTuple):
    """What a step computes, row by row; `sampled` are the rows whose logits are needed, `late`
    those whose tokens are on the device only: at `sources` among the ones drawn before.
    """

    tokens: list[int]
    positions: list[int]
    slots: list[int]
    sampled: list[int]
    late: list[int]
    sources: list[int]

    def take_late(self, tokens: torch.Tensor, drawn: torch.Tensor | None, upload: Uploader) -> None:
        """Put tokens that were drawn into the rows that need them."""
        if drawn is not None and self.late:
            rows, sources = upload.integers([self.late, self.sources])
            tokens.index_copy_(0, rows, drawn.index_select(0, sources))


def rows_of(laid_out: list[Chunk], chunks: list[Chunk], block_size: int) -> Rows:
    """The rows of chunks as they are laid out; the sampled ones in the order of `chunks`."""
    rows = Rows([], [], [], [], [], [])
    end_row: dict[int, int] = {}
    for chunk in laid_out:
        span = range(chunk.start, chunk.start + chunk.count)
        blocks = chunk.sequence.blocks
        if chunk.source is not None:
            rows.late.append(len(rows.tokens))
            rows.sources.append(chunk.source)
        rows.tokens.extend(chunk.tokens)
        rows.positions.extend(span)
        rows.slots.extend(
            blocks[place // block_size] * block_size + place % block_size for place in span
        )
        end_row[id(chunk)] = len(rows.tokens)
    for chunk in chunks:
        end = end_row[id(chunk)]
        rows.sampled.extend(range(end - chunk.logit_rows, end))
    return rows


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
        firsts = [(each, first_block(each.start, window, block_size)) for each in members]
        rests = [chunk.start + 1 - first * block_size for chunk, first in firsts]
        count = -(-round_up(max(rests), KEYS_STEP) // block_size)
        lengths = upload.integers(rests)
        mask = None
        if mask_dtype is not None:
            mask = decode_mask(lengths, count * block_size, window, mask_dtype)
        groups.append(
            DecodeGroup(
                start=start,
                stop=start + len(members),
                window=window,
                table=upload.integers([_table(*each, count, block_size) for each in firsts]),
                lengths=lengths,
                mask=mask,
            )
        )
    return groups


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
        first = first_block(chunk.start, window, block_size)
        length = chunk.start + chunk.count - first * block_size
        blocks = _table(chunk, first, -(-round_up(length, KEYS_STEP) // block_size), block_size)
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


def plan_spans(
    chunks: list[Chunk], first_row: int, block_size: int, upload: Uploader, window: int | None
) -> SpanBatch:
    """The same chunks for one call."""
    firsts = [first_block(each.start, window, block_size) for each in chunks]
    lengths = [
        each.start + each.count - first * block_size
        for each, first in zip(chunks, firsts, strict=True)
    ]
    count = -(-max(lengths) // block_size)
    tables = [
        _table(each, first, count, block_size) for each, first in zip(chunks, firsts, strict=True)
    ]
    return SpanBatch(
        window=window,
        starts=upload.integers(list(accumulate((c.count for c in chunks), initial=first_row))),
        lengths=upload.integers(lengths),
        table=upload.integers(tables),
    )


def first_block(position: int, window: int | None, block_size: int) -> int:
    """The first block with keys that a row at this position sees."""
    return 0 if window is None else max(0, position + 1 - window) // block_size


def _table(chunk: Chunk, first: int, count: int, block_size: int) -> list[int]:
    """`count` blocks from the first, padded with the last: no other sequence's data is read."""
    blocks = chunk.sequence.blocks[first : -(-(chunk.start + chunk.count) // block_size)]
    return blocks + blocks[-1:] * (count - len(blocks))


def decode_mask(
    lengths: torch.Tensor, keys: int, window: int | None, dtype: torch.dtype
) -> torch.Tensor:
    """`[rows, 1, 1, keys]`: minus infinity where a row does not see a key."""
    places = torch.arange(keys, device=lengths.device)
    hidden = places >= lengths[:, None]
    if window is not None:
        hidden |= places < lengths[:, None] - window
    mask = torch.zeros(hidden.shape, dtype=dtype, device=lengths.device)
    return mask.masked_fill_(hidden, float("-inf"))[:, None, None, :]


def lower_right(
    rows: int, length: int, window: int | None, device: torch.device | str, dtype: torch.dtype
) -> torch.Tensor:
    """`[rows, length]`: zero where row i sees a key, up to its own and within the window."""
    lengths = torch.arange(length - rows + 1, length + 1, device=device)
    return decode_mask(lengths, length, window, dtype)[:, 0, 0]
