"""Which attention runs on a device: the fastest that is installed and agrees with torch's own."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from inference.compact.attention.blockwise import decode_products, prefill_blockwise
from inference.compact.attention.cache import KvCache
from inference.compact.attention.sdpa import decode_fused, prefill_fused
from inference.compact.attention.trial import Trial
from inference.compact.batch.tensors import AttentionPlan, DecodeGroup, PrefillSpan
from inference.compact.candidates import Candidates, first_that_agrees
from inference.compact.config.shape import ModelShape
from inference.compact.load.placement import Placement

log = logging.getLogger("inference.compact")

Decode = Callable[[Tensor, KvCache, int, DecodeGroup], Tensor]
Prefill = Callable[[Tensor, KvCache, int, PrefillSpan], Tensor]
PAGED = "inference.compact.attention.paged"
DECODES = ((PAGED, "decode_paged"),)
PREFILLS = ((PAGED, "prefill_paged"),)
# It takes no float32.
HALF_PREFILLS = (("inference.compact.attention.torch_flash", "prefill_torch_flash"), *PREFILLS)


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """The functions that attend, and which of the two need masks in a plan."""

    decode: Decode
    prefill: Prefill
    decode_masks: bool
    prefill_masks: bool

    def attend(self, queries: Tensor, cache: KvCache, layer: int, plan: AttentionPlan) -> Tensor:
        """Outputs `[rows, heads * head_dim]` of queries `[rows, heads, head_dim]`, which the plan
        covers from the first on, spare ones excepted; the step's own keys and values must have been
        stored.
        """
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


def choose_kernels(shape: ModelShape, placement: Placement) -> Kernels:
    """Plain products on a CPU; elsewhere what is installed, with a warning where that is torch's
    own fused attention, which needs gathered copies and masks.
    """
    if placement.device == "cpu":
        return ON_CPU
    prefills = PREFILLS if placement.dtype == "float32" else HALF_PREFILLS
    return best_of(DECODES, prefills, Trial(shape, placement))


def best_of(decodes: Candidates, prefills: Candidates, trial: Trial) -> Kernels:
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
    )
