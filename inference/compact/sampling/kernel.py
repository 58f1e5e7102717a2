"""The sampling of a whole step in one Triton kernel: the highest logit of each row, and a token
where the row is not greedy, cut by top-p and min-p as `operators.draw_nucleus` cuts.

One program takes a row and never waits for the host; torch's operators take fifty launches and a
wait for each attempt. Random numbers are those of `rng`, computed here.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from inference.compact.sampling.rng import TRIES_MAX

TILE = 8192
WARPS = 16


def draw_rows(logits: Tensor, asked: Tensor, streams: Tensor, positions: Tensor) -> Tensor:
    """Tokens and highest logits, `[2, rows]` in float64, of logits `[rows, vocabulary]`, float32; a
    highest one that is not finite makes its token void.

    `asked` is `[3, rows]`: temperatures (0 for the highest logit), top-p (above 1 for all) and
    min-p (0 for all). `streams` and `positions` place each row in its random numbers, 64 bits.
    """
    rows, columns = logits.shape
    found = torch.empty(2, rows, dtype=torch.float64, device=logits.device)
    _draw_row[(rows,)](
        logits, asked, streams, positions, found, rows, logits.stride(0), COLUMNS=columns,
        TILE=min(TILE, triton.next_power_of_2(columns)),
        TILES=max(2, triton.next_power_of_2(triton.cdiv(columns, TILE))), TRIES=TRIES_MAX,
        num_warps=WARPS,
    )  # fmt: skip
    return found


@triton.jit(do_not_specialize=("rows",))  # type: ignore[untyped-decorator]
def _draw_row(
    logits: tl.tensor, asked: tl.tensor, streams: tl.tensor, positions: tl.tensor,
    found: tl.tensor, rows: tl.tensor, stride: tl.tensor, COLUMNS: tl.constexpr,
    TILE: tl.constexpr, TILES: tl.constexpr, TRIES: tl.constexpr,
) -> None:  # fmt: skip
    """One row: its highest logit, then attempts until a token lies within top-p."""
    row = tl.program_id(0)
    source = logits + row.to(tl.int64) * stride
    temperature = tl.load(asked + row)
    top_p = tl.load(asked + rows + row).to(tl.float64)
    min_p = tl.load(asked + 2 * rows + row)
    columns = tl.arange(0, TILE)
    # The best of each column of tiles; only in the end do threads wait for each other.
    bests = tl.load(source + columns, mask=columns < COLUMNS, other=float("-inf"))
    places = columns
    strangers = (bests != bests).to(tl.int32)
    for start in range(TILE, COLUMNS, TILE):
        place = start + columns
        value = tl.load(source + place, mask=place < COLUMNS, other=float("-inf"))
        strangers |= (value != value).to(tl.int32)
        places = tl.where(value > bests, place, places)
        bests = tl.maximum(bests, value)
    best = tl.max(bests, 0)
    token = tl.min(tl.where(bests == best, places, COLUMNS), 0)
    best = tl.where(tl.max(strangers, 0) > 0, float("nan"), best)
    if (temperature > 0.0) & (best > float("-inf")) & (best < float("inf")):
        sharp = 1.4426950408889634 / temperature
        sums = _sums(source, best, sharp, 0.0, 0.0, COLUMNS, TILE, TILES)
        limit = top_p * tl.sum(sums, 0)
        above = 0.0
        if min_p > 0.0:
            sums = _sums(source, best, sharp, min_p, above, COLUMNS, TILE, TILES)
        stream = tl.load(streams + row).to(tl.uint64, bitcast=True)
        place_in_stream = tl.load(positions + row).to(tl.uint64, bitcast=True) * TRIES
        attempt = tl.zeros([], tl.int32)
        while attempt < TRIES:
            attempt += 1
            point = _uniform(stream, place_in_stream + attempt.to(tl.uint64))
            token, above = _column_at(
                source, best, sharp, min_p, above, sums, point, COLUMNS, TILE, TILES
            )
            if top_p < 1.0:
                sums = _sums(source, best, sharp, min_p, above, COLUMNS, TILE, TILES)
                mass = tl.sum(sums, 0)
                if (mass < limit) | (mass <= 0.0):
                    attempt += TRIES
            else:
                attempt += TRIES
    tl.store(found + row, token.to(tl.float64))
    tl.store(found + rows + row, best.to(tl.float64))


@triton.jit  # type: ignore[untyped-decorator]
def _weights(
    source: tl.tensor, best: tl.tensor, sharp: tl.tensor, least: tl.tensor, above: tl.tensor,
    place: tl.tensor, COLUMNS: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Probabilities relative to the best one's, zero where it is below `least` or not `above`."""
    value = tl.load(source + place, mask=place < COLUMNS, other=float("-inf"))
    weight = tl.exp2((value - best) * sharp)
    return tl.where((weight >= least) & (weight > above), weight, 0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _sums(
    source: tl.tensor, best: tl.tensor, sharp: tl.tensor, least: tl.tensor, above: tl.tensor,
    COLUMNS: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    tiles = tl.arange(0, TILES)
    sums = tl.zeros([TILES], tl.float64)
    for start in range(0, COLUMNS, TILE):
        place = start + tl.arange(0, TILE)
        weight = _weights(source, best, sharp, least, above, place, COLUMNS)
        sums = tl.where(tiles == start // TILE, tl.sum(weight, 0).to(tl.float64), sums)
    return sums


@triton.jit  # type: ignore[untyped-decorator]
def _column_at(
    source: tl.tensor, best: tl.tensor, sharp: tl.tensor, least: tl.tensor, above: tl.tensor,
    sums: tl.tensor, point: tl.tensor, COLUMNS: tl.constexpr, TILE: tl.constexpr,
    TILES: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:  # fmt: skip
    """The column in which a point of (0, 1) falls, columns as wide as their weights; its weight."""
    tiles = tl.arange(0, TILES)
    ends = tl.cumsum(sums, 0)
    target = point * tl.sum(sums, 0)
    last = tl.max(tl.where(sums > 0.0, tiles, 0), 0)
    tile = tl.min(tl.where((ends >= target) & (sums > 0.0), tiles, last), 0)
    before = tl.sum(tl.where(tiles < tile, sums, 0.0), 0)
    place = tile * TILE + tl.arange(0, TILE)
    weight = _weights(source, best, sharp, least, above, place, COLUMNS)
    inside = tl.cumsum(weight.to(tl.float64), 0)
    # Rounding may carry the rest of the way past the tile's last column of any width.
    final = tl.max(tl.where(weight > 0.0, place, 0), 0)
    hit = (inside >= target - before) & (weight > 0.0)
    column = tl.min(tl.where(hit, place, final), 0)
    return column, tl.sum(tl.where(place == column, weight, 0.0), 0)


@triton.jit  # type: ignore[untyped-decorator]
def _uniform(stream: tl.tensor, count: tl.tensor) -> tl.tensor:
    """As `rng.uniforms`: SplitMix64."""
    z = stream + count * 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    z = z ^ (z >> 31)
    return ((z >> 11).to(tl.float64) + 0.5) * (1.0 / 9007199254740992.0)
