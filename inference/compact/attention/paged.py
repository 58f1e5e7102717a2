"""Attention straight over the paged cache in Triton: no gathered copy, no mask, any window.

Online softmax over tiles of keys, as in FlashAttention. Query heads that share a key head are rows
of one tile, so that each key is read once. Decoding cuts a sequence into parts, so that
few long ones occupy a whole GPU; their sums have one order, which depends only on the row's own
length, not on the rest of the batch.

Imported only where Triton is installed; it comes with torch for CUDA.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from inference.compact.attention.cache import KvCache
from inference.compact.batch.tensors import AttentionPlan, DecodeGroup, PrefillSpan, SpanBatch


class Tiling(NamedTuple):
    """How work is cut: rows of a tile with query heads counted, keys that it takes at a time,
    parts of a sequence; then what Triton makes of a tile.
    """

    rows: int
    keys: int
    splits: int
    warps: int
    stages: int


# The best of 16 and of 9 on an H100, heads of 64 and 128.
DECODING = Tiling(rows=1, keys=64, splits=16, warps=4, stages=2)
PREFILLING = Tiling(rows=128, keys=64, splits=1, warps=8, stages=2)
# Float32 takes twice the memory on the chip.
PREFILLING_WIDE = Tiling(rows=64, keys=32, splits=1, warps=4, stages=2)
# A part has so many keys at least: starting and adding up more parts costs more than it saves.
PART_KEYS_MIN = 192
# The least side that matrix units take.
SIDE_LEAST = 16
# Wider than any context.
NO_WINDOW = 1 << 30
# Exponentials are taken to base two, which is what the hardware has.
LOG2_E = 1.4426950408889634


def decode_paged(queries: Tensor, kv: KvCache, layer: int, group: DecodeGroup) -> Tensor:
    """Outputs `[rows, heads, head_dim]` of the group's queries of the same size."""
    return _attend(queries, kv, layer, group, 1, queries.new_empty(queries.shape))


def prefill_paged(queries: Tensor, kv: KvCache, layer: int, span: PrefillSpan) -> Tensor:
    """Outputs `[rows, heads, head_dim]` of the span's queries of the same size."""
    out = queries.new_empty(queries.shape)
    return _attend(queries, kv, layer, span, len(queries), out)


def attend_together(queries: Tensor, kv: KvCache, layer: int, plan: AttentionPlan) -> Tensor:
    """Outputs `[rows, heads, head_dim]` of a step's queries of the same size, zero for rows that
    the plan does not cover. All spans are one launch, and so is each group.
    """
    out = queries.new_zeros(queries.shape)
    for group in plan.decodes:
        rows = slice(group.start, group.stop)
        _attend(queries[rows], kv, layer, group, 1, out[rows])
    if plan.spans is not None:
        _attend(queries, kv, layer, plan.spans, len(queries), out)
    return out


def _tiling(seen: DecodeGroup | PrefillSpan | SpanBatch, dtype: torch.dtype) -> Tiling:
    if isinstance(seen, DecodeGroup):
        return DECODING
    return PREFILLING_WIDE if dtype == torch.float32 else PREFILLING


def _attend(
    queries: Tensor, kv: KvCache, layer: int, seen: DecodeGroup | PrefillSpan | SpanBatch,
    rows: int, out: Tensor,
) -> Tensor:  # fmt: skip
    """Each entry of `seen.lengths` is a sequence, whose last `rows` positions are its queries; of a
    batch of spans those that it says, `rows` being all.
    """
    count, heads, dim = queries.shape
    blocks = kv.blocks[layer]
    scales = blocks if kv.scales is None else kv.scales[layer]
    _, block, _, kv_heads, _ = blocks.shape
    group = heads // kv_heads
    tiling = _tiling(seen, queries.dtype)
    splits = tiling.splits
    per_tile = max(1, tiling.rows // group)
    tiles, starts, spans = len(seen.lengths) * triton.cdiv(rows, per_tile), seen.lengths, 0
    if isinstance(seen, SpanBatch):
        # Each begins with a tile of its own; some of the last ones may have nothing to do.
        starts, spans = seen.starts, len(seen.lengths)
        tiles = rows // per_tile + spans
    parts, bests, totals = out, out, out
    if splits > 1:
        parts = queries.new_empty(splits, count, heads, dim, dtype=torch.float32)
        bests, totals = parts.new_empty(2, splits, count, heads)
    dim_tile = max(triton.next_power_of_2(dim), SIDE_LEAST)
    _attend_tile[(tiles, kv_heads, splits)](
        queries, blocks, scales, seen.table, seen.lengths, starts, parts, bests, totals,
        dim**-0.5 * LOG2_E, rows, spans, count * heads, queries.stride(0), seen.table.stride(0),
        NO_WINDOW if seen.window is None else seen.window,
        GROUP=group, PER_TILE=per_tile, DIM=dim, BLOCK=block, WIDTH=kv_heads * dim, SPLITS=splits,
        CODED=kv.scales is not None,
        SPANS_TILE=triton.next_power_of_2(spans) if spans else 0,
        ROWS_TILE=max(triton.next_power_of_2(per_tile * group), SIDE_LEAST),
        DIM_TILE=dim_tile, KEYS_TILE=tiling.keys, PART_KEYS_MIN=PART_KEYS_MIN,
        num_warps=tiling.warps, num_stages=tiling.stages,
    )  # fmt: skip
    if splits > 1:
        _add_up[(count * heads,)](
            parts, bests, totals, out, count * heads, DIM=dim, DIM_TILE=dim_tile, SPLITS=splits
        )
    return out


# Compiled once for a model: sizes that vary from step to step must not be compiled separately.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=("all_rows", "spans", "outputs", "table_stride")
)
def _attend_tile(
    queries: tl.tensor, blocks: tl.tensor, scales: tl.tensor, table: tl.tensor, lengths: tl.tensor,
    starts: tl.tensor, out: tl.tensor, bests: tl.tensor, totals: tl.tensor, scale: tl.tensor,
    all_rows: tl.tensor, spans: tl.tensor, outputs: tl.tensor, query_stride: tl.tensor,
    table_stride: tl.tensor, window: tl.tensor, GROUP: tl.constexpr, PER_TILE: tl.constexpr,
    DIM: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr,
    CODED: tl.constexpr, SPANS_TILE: tl.constexpr, ROWS_TILE: tl.constexpr,
    DIM_TILE: tl.constexpr, KEYS_TILE: tl.constexpr, PART_KEYS_MIN: tl.constexpr,
) -> None:  # fmt: skip
    """A few rows of one sequence, the query heads of one key head, one part of their keys."""
    if SPANS_TILE > 0:
        sequence, start, rows, first_query = _own_span(starts, spans, PER_TILE, SPANS_TILE)
        if first_query >= rows:
            return
    else:
        sequence, start, rows, first_query = _own_rows(all_rows, PER_TILE)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(lengths + sequence)

    first = length - rows + first_query
    end = tl.minimum(first + PER_TILE, length)
    low = tl.maximum(first + 1 - window, 0)
    span = tl.cdiv(end - low, SPLITS * KEYS_TILE) * KEYS_TILE
    if SPLITS > 1:
        span = tl.maximum(span, PART_KEYS_MIN)
    begin = low + split * span
    stop = tl.minimum(begin + span, end)

    places = tl.arange(0, ROWS_TILE)
    query = first_query + places // GROUP
    head = kv_head * GROUP + places % GROUP
    real = (places < PER_TILE * GROUP) & (query < rows)
    own = length - rows + query
    row = start + query
    result = row * (WIDTH // DIM * GROUP) + head
    if SPLITS > 1:
        result += split * outputs
        if begin >= stop:
            # A part without keys, of a short sequence.
            tl.store(bests + result, float("-inf"), mask=real)
            return
    dims = tl.arange(0, DIM_TILE)
    mine = real[:, None] & (dims < DIM)[None, :]
    asked = queries + (row * query_stride + head * DIM)[:, None] + dims[None, :]
    q = tl.load(asked, mask=mine, other=0.0)

    best, total, gathered = _look(
        q, blocks + kv_head * DIM, scales + kv_head, table + sequence * table_stride, own, first,
        begin, stop, window, scale, PER_TILE, DIM, BLOCK, WIDTH, ROWS_TILE, DIM_TILE, KEYS_TILE,
        CODED,
    )  # fmt: skip
    if SPLITS == 1:
        gathered = gathered / total[:, None]
    else:
        tl.store(bests + result, best, mask=real)
        tl.store(totals + result, total, mask=real)
    target = out + result.to(tl.int64)[:, None] * DIM + dims[None, :]
    tl.store(target, gathered.to(out.dtype.element_ty), mask=mine)


@triton.jit  # type: ignore[untyped-decorator]
def _own_rows(
    rows: tl.tensor, PER_TILE: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """As `_own_span`, of sequences that all have so many rows."""
    tiles = tl.cdiv(rows, PER_TILE)
    sequence = tl.program_id(0) // tiles
    return sequence, sequence * rows, rows, tl.program_id(0) % tiles * PER_TILE


@triton.jit  # type: ignore[untyped-decorator]
def _own_span(
    starts: tl.tensor, spans: tl.tensor, PER_TILE: tl.constexpr, SPANS_TILE: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """The span whose tile this program is, its first row and rows, and the first one of the tile.

    Span `i` may begin `i` tiles later than its rows alone would: each leaves one unfilled at most.
    """
    numbers = tl.arange(0, SPANS_TILE)
    known = numbers < spans
    base = tl.load(starts)
    begins = (tl.load(starts + numbers, mask=known, other=0) - base) // PER_TILE + numbers
    sequence = tl.sum((known & (begins <= tl.program_id(0))).to(tl.int32), 0) - 1
    start = tl.load(starts + sequence)
    tile = tl.program_id(0) - ((start - base) // PER_TILE + sequence)
    return sequence, start, tl.load(starts + sequence + 1) - start, tile * PER_TILE


@triton.jit  # type: ignore[untyped-decorator]
def _look(
    q: tl.tensor, blocks: tl.tensor, scales: tl.tensor, table: tl.tensor, own: tl.tensor,
    first: tl.tensor, begin: tl.tensor, stop: tl.tensor, window: tl.tensor, scale: tl.tensor,
    PER_TILE: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
    ROWS_TILE: tl.constexpr, DIM_TILE: tl.constexpr, KEYS_TILE: tl.constexpr, CODED: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:  # fmt: skip
    """Each row's maximum, sum and weighted values over the keys from `begin` to `stop`."""
    dims = tl.arange(0, DIM_TILE)
    best = tl.full([ROWS_TILE], float("-inf"), tl.float32)
    total = tl.zeros([ROWS_TILE], tl.float32)
    gathered = tl.zeros([ROWS_TILE, DIM_TILE], tl.float32)
    # Up to here every row sees every key, so that nothing needs a mask.
    clear = begin
    if window > first + PER_TILE:
        clear += tl.maximum(tl.minimum(first + 1, stop) - begin, 0) // KEYS_TILE * KEYS_TILE
    for at in range(begin, clear, KEYS_TILE):
        keys = at + tl.arange(0, KEYS_TILE)
        token = _token_at(table, keys, keys < stop, BLOCK)
        place = blocks + (token * (2 * WIDTH))[:, None] + dims[None, :]
        held = (dims < DIM)[None, :]
        by = scales + token * (2 * WIDTH // DIM)
        best, total, gathered = _take_keys(
            best, total, gathered, q, place, place + WIDTH, held, by, by + WIDTH // DIM,
            keys < stop, held, scale, MASKED=False, CODED=CODED,
        )  # fmt: skip
    for at in range(clear, stop, KEYS_TILE):
        keys = at + tl.arange(0, KEYS_TILE)
        known = keys < stop
        token = _token_at(table, keys, known, BLOCK)
        place = blocks + (token * (2 * WIDTH))[:, None] + dims[None, :]
        held = known[:, None] & (dims < DIM)[None, :]
        near = keys[None, :] > own[:, None] - window
        visible = known[None, :] & (keys[None, :] <= own[:, None]) & near
        by = scales + token * (2 * WIDTH // DIM)
        best, total, gathered = _take_keys(
            best, total, gathered, q, place, place + WIDTH, held, by, by + WIDTH // DIM,
            known, visible, scale, MASKED=True, CODED=CODED,
        )  # fmt: skip
    return best, total, gathered


@triton.jit  # type: ignore[untyped-decorator]
def _token_at(
    table: tl.tensor, keys: tl.tensor, known: tl.tensor, BLOCK: tl.constexpr
) -> tl.tensor:
    """Where a sequence's keys are, counted in tokens of the cache."""
    return tl.load(table + keys // BLOCK, mask=known, other=0) * BLOCK + keys % BLOCK


@triton.jit  # type: ignore[untyped-decorator]
def _take_keys(
    best: tl.tensor, total: tl.tensor, gathered: tl.tensor, q: tl.tensor,
    keys: tl.tensor, values: tl.tensor, held: tl.tensor, key_scales: tl.tensor,
    value_scales: tl.tensor, known: tl.tensor, visible: tl.tensor, scale: tl.tensor,
    MASKED: tl.constexpr, CODED: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:  # fmt: skip
    """Each row's maximum, sum and weighted values with one more tile of keys. Scales of FP8 are
    for what is multiplied with a whole key or value, so that no matrix is widened by them.
    """
    key = tl.load(keys, mask=held, other=0.0).to(q.dtype)
    value = tl.load(values, mask=held, other=0.0).to(q.dtype)
    scores = tl.dot(q, tl.trans(key), input_precision="ieee") * scale
    if CODED:
        scores *= tl.load(key_scales, mask=known, other=0.0).to(tl.float32)[None, :]
    if MASKED:
        scores = tl.where(visible, scores, float("-inf"))
    higher = tl.maximum(best, tl.max(scores, 1))
    base = higher
    if MASKED:
        # A row that has seen no key yet has no maximum; zero keeps its differences defined.
        base = tl.where(higher == float("-inf"), 0.0, higher)
    shrunk = tl.exp2(best - base)
    share = tl.exp2(scores - base[:, None])
    total = total * shrunk + tl.sum(share, 1)
    if CODED:
        share *= tl.load(value_scales, mask=known, other=0.0).to(tl.float32)[None, :]
    found = tl.dot(share.to(value.dtype), value, input_precision="ieee")
    return higher, total, gathered * shrunk[:, None] + found


@triton.jit(do_not_specialize=("outputs",))  # type: ignore[untyped-decorator]
def _add_up(
    parts: tl.tensor, bests: tl.tensor, totals: tl.tensor, out: tl.tensor, outputs: tl.tensor,
    DIM: tl.constexpr, DIM_TILE: tl.constexpr, SPLITS: tl.constexpr,
) -> None:  # fmt: skip
    """One row and head from its parts, each relative to its own maximum."""
    result = tl.program_id(0)
    splits = tl.arange(0, SPLITS)
    dims = tl.arange(0, DIM_TILE)
    best = tl.load(bests + splits * outputs + result)
    full = best > float("-inf")
    if tl.max(full.to(tl.int32), 0) == 0:
        # A row without any key is none of this step's.
        return
    total = tl.load(totals + splits * outputs + result, mask=full, other=0.0)
    share = tl.exp2(best - tl.max(best, 0))
    place = (splits.to(tl.int64) * outputs + result)[:, None] * DIM + dims[None, :]
    part = tl.load(parts + place, mask=full[:, None] & (dims < DIM)[None, :], other=0.0)
    found = tl.sum(part * share[:, None], 0) / tl.sum(total * share, 0)
    tl.store(out + result * DIM + dims, found.to(out.dtype.element_ty), mask=dims < DIM)
