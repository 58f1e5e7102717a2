"""A trial of attention code on the device it is to run on, before anything is served with it.

Installed kernels depend on driver, compiler and chip; a wrong one would go unnoticed.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from inference.compact.attention.cache import KvCache
from inference.compact.attention.sdpa import decode_fused, prefill_fused
from inference.compact.batch.decode import decode_mask
from inference.compact.batch.padding import KEYS_STEP, round_up
from inference.compact.batch.prefill import lower_right
from inference.compact.batch.tensors import DecodeGroup, PrefillSpan
from inference.compact.config.shape import ModelShape
from inference.compact.load.placement import Placement

LENGTHS = (1, 31, 32, 33, 300)
# Rows and length of prefills: from the first token, and behind a prefix.
SPANS = ((70, 70), (130, 167))
KEYS = round_up(max(LENGTHS), KEYS_STEP)
WINDOWS = (None, 29)
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 3e-2}


class Trial:
    """Random queries against random blocks; torch's own attention says what is right."""

    def __init__(self, shape: ModelShape, placement: Placement) -> None:
        self.shape = shape
        self.block_count = -(-KEYS // placement.block_size)
        self.cache = KvCache(
            replace(shape, layers=1), replace(placement, kv_blocks=self.block_count)
        )
        self.blocks = self.cache.blocks
        self.random = torch.Generator(self.blocks.device).manual_seed(1)
        self.blocks.normal_(generator=self.random)

    def decodes(self, kernel: Callable[[Tensor, KvCache, int, DecodeGroup], Tensor]) -> bool:
        """Whether decode attention agrees for several lengths, with and without a window."""
        for window in WINDOWS:
            lengths = torch.tensor(LENGTHS, device=self.blocks.device)
            group = DecodeGroup(
                start=0,
                stop=len(LENGTHS),
                window=window,
                table=torch.stack([self._table() for _ in LENGTHS]),
                lengths=lengths,
                mask=decode_mask(lengths, KEYS, window, self.blocks.dtype),
            )
            queries = self._queries(len(LENGTHS))
            expected = decode_fused(queries, self.cache, 0, group)
            if not self._close(kernel(queries, self.cache, 0, group), expected):
                return False
        return True

    def prefills(self, kernel: Callable[[Tensor, KvCache, int, PrefillSpan], Tensor]) -> bool:
        """Whether prefill attention agrees with and without a prefix and a window."""
        for window in WINDOWS:
            for rows, length in SPANS:
                span = PrefillSpan(
                    start=0,
                    stop=rows,
                    length=length,
                    window=window,
                    table=self._table()[None],
                    lengths=torch.tensor([length], device=self.blocks.device),
                    mask=lower_right(rows, length, window, self.blocks.device, self.blocks.dtype),
                )
                queries = self._queries(rows)
                expected = prefill_fused(queries, self.cache, 0, span)
                if not self._close(kernel(queries, self.cache, 0, span), expected):
                    return False
        return True

    def _table(self) -> Tensor:
        device = self.blocks.device
        return torch.randperm(self.block_count, generator=self.random, device=device)

    def _queries(self, rows: int) -> Tensor:
        size = (rows, self.shape.heads, self.shape.head_dim)
        return self.blocks.new_empty(size).normal_(generator=self.random)

    def _close(self, found: Tensor, expected: Tensor) -> bool:
        tolerance = TOLERANCES[self.blocks.dtype]
        return torch.allclose(found.float(), expected.float(), atol=tolerance, rtol=tolerance)
