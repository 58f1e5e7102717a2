"""Tokens that were drawn, on their way from the device to the host."""

from __future__ import annotations

from functools import cached_property
from math import isfinite

import torch
from torch import Tensor

from inference.compact.batch.tensors import Uploader
from inference.compact.schedule.outputs import SampledToken
from inference.contract.parts import TokenLogprob

# Of rows whose log probabilities are reported: those of all tokens, and the best.
Reported = dict[int, tuple[Tensor, list[tuple[int, float]]]]
# Tokens and highest logits: `[2, rows]` in float64 on the device, or lists.
Found = Tensor | tuple[list[int], list[float]]


class Drawn:
    """One token for each sampled row; of a GPU they are copied as soon as they are there, so that
    reading waits for no later step.
    """

    def __init__(self, found: Found, reported: Reported, vocabulary: int, upload: Uploader) -> None:
        self._found, self._host = found, found
        self._reported, self._vocabulary, self._upload = reported, vocabulary, upload
        self._copied: torch.cuda.Event | None = None
        if isinstance(found, Tensor) and found.is_cuda:
            self._host = found.to("cpu", non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()

    @cached_property
    def ids(self) -> Tensor:
        """The tokens on the device, int64; some token where there is none."""
        if isinstance(self._found, Tensor):
            return self._found[0].long().clamp_(max=self._vocabulary - 1)
        return self._upload.integers(self._found[0])

    def read(self) -> list[SampledToken]:
        """Wait for them."""
        if self._copied is not None:
            self._copied.synchronize()
        tokens, highest = self._lists()
        # Not finite: not a number, or nothing that may come next.
        return [
            SampledToken(tokens[row], _report(self._reported, row, tokens[row]))
            if isfinite(best)
            else SampledToken(None)
            for row, best in enumerate(highest)
        ]

    def _lists(self) -> tuple[list[int], list[float]]:
        if not isinstance(self._host, Tensor):
            return self._host
        tokens, highest = self._host.tolist()
        return [int(token) for token in tokens], highest


def _report(reported: Reported, row: int, token: int) -> TokenLogprob | None:
    if row not in reported:
        return None
    table, top = reported[row]
    return TokenLogprob(token=token, logprob=float(table[token]), top=top)
