"""Which attention runs on a device: the fastest that is installed and agrees with torch's own.

Installed kernels depend on driver, compiler and chip; a wrong one would go unnoticed, so each has a
trial on the device before anything is served with it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from inference.compact.attention.blockwise import decode_products, prefill_blockwise
from inference.compact.attention.cache import KvCache
from inference.compact.attention.fused import decode_fused, prefill_fused
from inference.compact.batch.plan import decode_mask, lower_right
from inference.compact.batch.tensors import (
    KEYS_STEP,
    AttentionPlan,
    DecodeGroup,
    PrefillSpan,
    SpanBatch,
    round_up,
)
from inference.compact.candidates import Candidates, first_that_agrees
from inference.compact.config.shape import ModelShape
from inference.compact.load.placement import Placement

log = logging.getLogger("inference.compact")

Decode = Callable[[Tensor, KvCache, int, DecodeGroup], Tensor]
Prefill = Callable[[Tensor, KvCache, int, PrefillSpan], Tensor]
Together = Callable[[Tensor, KvCache, int, AttentionPlan], Tensor]
Kernel = Callable[[Tensor, KvCache, int, Any], Tensor]
PAGED = "inference.compact.attention.paged"
DECODES = ((PAGED, "decode_paged"),)
PREFILLS = ((PAGED, "prefill_paged"),)
TOGETHER = ((PAGED, "attend_together"),)
# It takes no float32.
HALF_PREFILLS = (("inference.compact.attention.fused", "prefill_torch_flash"), *PREFILLS)
LENGTHS = (1, 31, 32, 33, 300)
# Rows and length of prefills: from the first token, and behind a prefix.
SPANS = ((70, 70), (130, 167), (2, 300), (1, 1))
KEYS = round_up(max(LENGTHS), KEYS_STEP)
WINDOWS = (None, 29)
SPARE = 3
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 3e-2}


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """The functions that attend, and which of the first two need masks in a plan. `together` takes
    steps of several prefill spans, decoding rows included, where a device has such a kernel.
    """

    decode: Decode
    prefill: Prefill
    decode_masks: bool
    prefill_masks: bool
    together: Together | None = None

    def attend(self, queries: Tensor, cache: KvCache, layer: int, plan: AttentionPlan) -> Tensor:
        """Outputs `[rows, heads * head_dim]` of queries `[rows, heads, head_dim]`, which the plan
        covers from the first on, spare ones excepted; the step's own keys and values must have been
        stored.
        """
        if self.together is not None and plan.spans is not None:
            return self.together(queries, cache, layer, plan).reshape(len(queries), -1)
        parts = [
            self.decode(queries[group.start : group.stop], cache, layer, group)
            for group in plan.decodes
        ]
        parts += [
            self.prefill(queries[span.start : span.stop], cache, layer, span)
            for span in plan.prefills
        ]
        spare = len(queries) - sum(len(part) for part in parts)
        if spare:
            parts.append(queries.new_zeros(spare, *queries.shape[1:]))
        out = parts[0] if len(parts) == 1 else torch.cat(parts)
        return out.reshape(len(queries), -1)


ON_CPU = Kernels(
    decode=decode_products, prefill=prefill_blockwise, decode_masks=True, prefill_masks=False
)


FLOOR = Kernels(decode=decode_fused, prefill=prefill_fused, decode_masks=True, prefill_masks=True)


class Trial:
    """Random queries against random blocks; torch's own attention says what is right."""

    def __init__(self, shape: ModelShape, placement: Placement) -> None:
        self.shape = shape
        self.block_count = -(-KEYS // placement.block_size)
        self.cache = KvCache(
            replace(shape, layers=1), replace(placement, kv_blocks=self.block_count)
        )
        self.device = self.cache.blocks.device
        self.random = torch.Generator(self.device).manual_seed(1)
        kept = self.cache.kept[0]
        slots = torch.arange(len(kept.values), device=self.device)
        kept.put(slots, self._normal(*kept.values.shape))

    def decodes(self, kernel: Decode) -> bool:
        """Whether decode attention agrees for several lengths, with and without a window."""
        groups = [self._group(window) for window in WINDOWS]
        return all(self._agree(kernel, decode_fused, group, group.stop) for group in groups)

    def prefills(self, kernel: Prefill) -> bool:
        """Whether prefill attention agrees with and without a prefix and a window."""
        spans = [self._span(0, *sizes, window) for window in WINDOWS for sizes in SPANS]
        return all(self._agree(kernel, prefill_fused, span, span.stop) for span in spans)

    def together(self, kernel: Together) -> bool:
        """Whether a whole step agrees: decoding rows, spans of any length, and spare rows."""
        return all(
            self._agree(kernel, _by_parts, plan, plan.prefills[-1].stop + SPARE)
            for plan in map(self._plan, WINDOWS)
        )

    def _plan(self, window: int | None) -> AttentionPlan:
        """Each span twice: as one of many, and by itself for torch."""
        group, spans = self._group(window), list[PrefillSpan]()
        for rows, length in SPANS:
            spans.append(self._span(spans[-1].stop if spans else group.stop, rows, length, window))
        edges = [span.start for span in spans] + [spans[-1].stop]
        batch = SpanBatch(
            window=window,
            starts=torch.tensor(edges, device=self.device),
            lengths=torch.cat([span.lengths for span in spans]),
            table=torch.cat([span.table for span in spans]),
        )
        return AttentionPlan(decodes=[group], prefills=spans, spans=batch)

    def _group(self, window: int | None) -> DecodeGroup:
        lengths = torch.tensor(LENGTHS, device=self.device)
        return DecodeGroup(
            start=0,
            stop=len(LENGTHS),
            window=window,
            table=torch.stack([self._table() for _ in LENGTHS]),
            lengths=lengths,
            mask=decode_mask(lengths, KEYS, window, self.cache.dtype),
        )

    def _span(self, start: int, rows: int, length: int, window: int | None) -> PrefillSpan:
        return PrefillSpan(
            start=start,
            stop=start + rows,
            length=length,
            window=window,
            table=self._table()[None],
            lengths=torch.tensor([length], device=self.device),
            mask=lower_right(rows, length, window, self.device, self.cache.dtype),
        )

    def _table(self) -> Tensor:
        return torch.randperm(self.block_count, generator=self.random, device=self.device)

    def _normal(self, *size: int) -> Tensor:
        return torch.randn(size, generator=self.random, dtype=self.cache.dtype, device=self.device)

    def _agree(self, kernel: Kernel, right: Kernel, plan: object, rows: int) -> bool:
        queries = self._normal(rows, self.shape.heads, self.shape.head_dim)
        found, expected = (each(queries, self.cache, 0, plan).float() for each in (kernel, right))
        tolerance = TOLERANCES[self.cache.dtype]
        return torch.allclose(found, expected, atol=tolerance, rtol=tolerance)


def _by_parts(queries: Tensor, cache: KvCache, layer: int, plan: AttentionPlan) -> Tensor:
    """By torch's own attention, each part by itself."""
    return FLOOR.attend(queries, cache, layer, plan).view(queries.shape)


def choose_kernels(shape: ModelShape, placement: Placement) -> Kernels:
    """Plain products on a CPU; elsewhere what is installed, with a warning where that is torch's
    own fused attention, which needs gathered copies and masks.
    """
    if placement.device == "cpu":
        return ON_CPU
    prefills = PREFILLS if placement.dtype == "float32" else HALF_PREFILLS
    return best_of(DECODES, prefills, Trial(shape, placement))


def best_of(
    decodes: Candidates, prefills: Candidates, trial: Trial, together: Candidates = TOGETHER
) -> Kernels:
    """The first candidates that pass, each with torch's own as its floor."""
    decode = first_that_agrees(decodes, trial.decodes)
    prefill = first_that_agrees(prefills, trial.prefills)
    slow = [name for name, kernel in (("decode", decode), ("prefill", prefill)) if kernel is None]
    if slow:
        log.warning("%s attend by torch's own kernels, which are slower", " and ".join(slow))
    return Kernels(
        decode=decode or decode_fused,
        prefill=prefill or prefill_fused,
        decode_masks=decode is None,
        prefill_masks=prefill is None,
        together=first_that_agrees(together, trial.together),
    )
