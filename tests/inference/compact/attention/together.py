"""A whole step's attention from its plan alone, in torch: what a kernel for all of it must do."""

from __future__ import annotations

import torch

from inference.compact.attention.cache import KvCache
from inference.compact.attention.fused import prefill_fused
from inference.compact.batch.plan import lower_right
from inference.compact.batch.tensors import AttentionPlan, PrefillSpan


def attend_by_definition(
    queries: torch.Tensor, cache: KvCache, layer: int, plan: AttentionPlan
) -> torch.Tensor:
    """Sequence after sequence; those without rows or without keys are passed over."""
    rows: list[tuple[int, int, int, int | None, torch.Tensor]] = []
    for group in plan.decodes:
        for row, length in enumerate(group.lengths.tolist(), group.start):
            rows.append((row, row + 1, length, group.window, group.table[row - group.start]))
    if plan.spans is not None:
        starts, lengths = plan.spans.starts.tolist(), plan.spans.lengths.tolist()
        edges = zip(starts, starts[1:], lengths, plan.spans.table, strict=False)
        rows += [(start, stop, length, plan.spans.window, t) for start, stop, length, t in edges]
    out = torch.zeros_like(queries)
    for start, stop, length, window, table in rows:
        if stop > start and length:
            mask = lower_right(stop - start, length, window, queries.device, queries.dtype)
            span = PrefillSpan(
                start=start, stop=stop, length=length, window=window, table=table[None],
                lengths=table, mask=mask,
            )  # fmt: skip
            out[start:stop] = prefill_fused(queries[start:stop], cache, layer, span)
    return out
