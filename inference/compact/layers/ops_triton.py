"""The operators of `ops`, one Triton kernel each.

Decoding a small model is bound by kernel launches; torch's operators take a dozen a layer. Sums are
computed in float32 and rounded where torch rounds. Imported only where Triton is installed.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from inference.compact.attention.cache import Kept
from inference.compact.layers.ops import HeadSizes, LayerOps, Norms
from inference.compact.scaled import E4M3_MAX, SCALE_MIN

# Columns of a gate and heads of a row that one program takes.
GATE_TILE = 1024
HEADS_TILE = 16
# From so wide a row on, a norm takes twice the warps.
WIDE_ROW = 2048


def add_norm(x: Tensor, added: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """The norm of x, `[rows, hidden]`, to which `added` is added first, in place."""
    rows, hidden = x.shape
    out = x.new_empty(rows, hidden)
    _add_norm[(rows,)](
        x, x if added is None else added, weight, out, eps,
        HIDDEN=hidden, TILE=triton.next_power_of_2(hidden), ADD=added is not None,
        num_warps=8 if hidden >= WIDE_ROW else 4,
    )  # fmt: skip
    return out


def place_heads(
    fused: Tensor, norms: Norms, turn: Tensor | None, slots: Tensor, kept: Kept, sizes: HeadSizes
) -> Tensor:
    out = fused.new_empty(len(fused), sizes.heads, sizes.dim)
    tiles = triton.cdiv(sizes.heads + 2 * sizes.kv_heads, HEADS_TILE)
    query_norm, key_norm = norms if norms is not None else (fused, fused)
    _place_heads[(len(fused), tiles)](
        fused, query_norm, key_norm, fused if turn is None else turn, slots, out, kept.values,
        fused if kept.scales is None else kept.scales, sizes.norm_eps,
        HEADS=sizes.heads, KV=sizes.kv_heads, DIM=sizes.dim, HEADS_TILE=HEADS_TILE,
        DIM_TILE=triton.next_power_of_2(sizes.dim), NORMED=norms is not None,
        TURNED=turn is not None, CODED=kept.scales is not None,
        CODE_MAX=E4M3_MAX, SCALE_LEAST=SCALE_MIN,
    )  # fmt: skip
    return out


def gate(fused: Tensor) -> Tensor:
    """Of `[rows, 2 * width]` the second half, by the SiLU of the first."""
    rows, width = fused.shape[0], fused.shape[1] // 2
    out = fused.new_empty(rows, width)
    _gate[(rows, triton.cdiv(width, GATE_TILE))](
        fused, out, fused.stride(0), WIDTH=width, TILE=GATE_TILE
    )
    return out


FUSED = LayerOps(add_norm=add_norm, place_heads=place_heads, gate=gate)


@triton.jit  # type: ignore[untyped-decorator]
def _add_norm(
    x: tl.tensor, added: tl.tensor, weight: tl.tensor, out: tl.tensor, eps: tl.tensor,
    HIDDEN: tl.constexpr, TILE: tl.constexpr, ADD: tl.constexpr,
) -> None:  # fmt: skip
    columns = tl.arange(0, TILE)
    real = columns < HIDDEN
    place = tl.program_id(0).to(tl.int64) * HIDDEN + columns
    value = tl.load(x + place, mask=real, other=0.0)
    if ADD:
        more = tl.load(added + place, mask=real, other=0.0)
        value = (value.to(tl.float32) + more.to(tl.float32)).to(x.dtype.element_ty)
        tl.store(x + place, value, mask=real)
    wide = value.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / HIDDEN + eps)
    by = tl.load(weight + columns, mask=real, other=0.0).to(tl.float32)
    tl.store(out + place, (wide * scale * by).to(out.dtype.element_ty), mask=real)


@triton.jit  # type: ignore[untyped-decorator]
def _place_heads(
    fused: tl.tensor, query_norm: tl.tensor, key_norm: tl.tensor, turn: tl.tensor,
    slots: tl.tensor, out: tl.tensor, kept: tl.tensor, scales: tl.tensor, eps: tl.tensor,
    HEADS: tl.constexpr, KV: tl.constexpr, DIM: tl.constexpr, HEADS_TILE: tl.constexpr,
    DIM_TILE: tl.constexpr, NORMED: tl.constexpr, TURNED: tl.constexpr, CODED: tl.constexpr,
    CODE_MAX: tl.constexpr, SCALE_LEAST: tl.constexpr,
) -> None:  # fmt: skip
    """A few heads of one row; the heads of a row are queries, keys, values."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS_TILE + tl.arange(0, HEADS_TILE)
    dims = tl.arange(0, DIM_TILE)
    real = (head < HEADS + 2 * KV)[:, None] & (dims < DIM)[None, :]
    turning = (head < HEADS + KV)[:, None]
    is_query = (head < HEADS)[:, None]
    # Each number is paired with the one half a head further on.
    partners = (dims + DIM // 2) % DIM
    source = fused + row * ((HEADS + 2 * KV) * DIM) + head[:, None] * DIM
    value = tl.load(source + dims[None, :], mask=real, other=0.0)
    partner = tl.load(source + partners[None, :], mask=real & turning, other=0.0)
    if NORMED:
        wide = value.to(tl.float32)
        scale = tl.rsqrt(tl.sum(wide * wide, 1) / DIM + eps)[:, None]
        value = tl.where(
            turning, _scaled(value, query_norm, key_norm, is_query, scale, dims, DIM), value
        )
        partner = _scaled(partner, query_norm, key_norm, is_query, scale, partners, DIM)
    if TURNED:
        angles = turn + row * (2 * DIM) + dims
        cosines = tl.load(angles, mask=dims < DIM, other=0.0).to(tl.float32)[None, :]
        sines = tl.load(angles + DIM, mask=dims < DIM, other=0.0).to(tl.float32)[None, :]
        turned = value.to(tl.float32) * cosines + partner.to(tl.float32) * sines
        value = tl.where(turning, turned.to(fused.dtype.element_ty), value)
    tl.store(out + row * (HEADS * DIM) + head[:, None] * DIM + dims[None, :], value,
             mask=real & is_query)  # fmt: skip
    slot = tl.load(slots + row)
    target = kept + slot * (2 * KV * DIM) + (head - HEADS)[:, None] * DIM + dims[None, :]
    if CODED:
        # As `cache.coded`.
        wide = value.to(tl.float32)
        most = tl.max(tl.abs(wide), 1) / CODE_MAX
        by_head = tl.maximum(most, SCALE_LEAST).to(scales.dtype.element_ty)
        tl.store(scales + slot * (2 * KV) + head - HEADS, by_head,
                 mask=(head >= HEADS) & (head < HEADS + 2 * KV))  # fmt: skip
        value = (wide / by_head.to(tl.float32)[:, None]).to(kept.dtype.element_ty)
    tl.store(target, value, mask=real & (head >= HEADS)[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _scaled(
    value: tl.tensor, query_norm: tl.tensor, key_norm: tl.tensor, is_query: tl.tensor,
    scale: tl.tensor, dims: tl.tensor, DIM: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Heads by their own scale and the weights of their kind."""
    of_queries = tl.load(query_norm + dims, mask=dims < DIM, other=0.0).to(tl.float32)
    of_keys = tl.load(key_norm + dims, mask=dims < DIM, other=0.0).to(tl.float32)
    weight = tl.where(is_query, of_queries[None, :], of_keys[None, :])
    return (value.to(tl.float32) * scale * weight).to(value.dtype)


@triton.jit  # type: ignore[untyped-decorator]
def _gate(
    fused: tl.tensor, out: tl.tensor, stride: tl.tensor, WIDTH: tl.constexpr, TILE: tl.constexpr
) -> None:
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    real = columns < WIDTH
    opened = tl.load(fused + row * stride + columns, mask=real, other=0.0).to(tl.float32)
    passed = tl.load(fused + row * stride + WIDTH + columns, mask=real, other=0.0).to(tl.float32)
    shut = (opened * tl.sigmoid(opened)).to(out.dtype.element_ty).to(tl.float32)
    tl.store(out + row * WIDTH + columns, (shut * passed).to(out.dtype.element_ty), mask=real)
