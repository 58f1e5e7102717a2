"""The tensors of one step: rows of all its chunks back to back, and which attends to what.

Sizes are rounded up to a grid, so that a step takes one of few shapes: libraries and GPUs keep
compiled code per shape, and 1,100 of them cost 300 MB after a few minutes.
"""

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

# (up to this many rows, in steps of); more rows come in the last step.
ROW_GRID = ((8, 1), (64, 8), (256, 32))
ROW_STEP_ABOVE = 64
# Keys that one product of queries and keys goes over.
KEYS_STEP = 128


def round_up(count: int, step: int) -> int:
    """The least multiple of `step` that is not below `count`."""
    return -(-count // step) * step


def round_up_rows(count: int) -> int:
    """The least row count of the grid that is not below `count`."""
    step = next((step for bound, step in ROW_GRID if count <= bound), ROW_STEP_ABOVE)
    return round_up(count, step)


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeGroup:
    """Rows `start` to `stop`, one of each sequence.

    `lengths` counts each row's keys from the first block in its table, its own included; the row
    sees the last `window` of them. `mask` says the same and is added to the scores; None for
    kernels that need no mask.
    """

    start: int
    stop: int
    window: int | None
    table: Tensor
    lengths: Tensor
    mask: Tensor | None

    @property
    def added(self) -> Tensor:
        """The mask, for a kernel that needs one."""
        if self.mask is None:
            raise ValueError("mask: these rows were planned for a kernel without masks")
        return self.mask


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefillSpan:
    """Rows `start` to `stop`, of one sequence; `length` counts its keys from the first block in
    the table up to the last row, `lengths` is the same on the device. A row sees the last `window`
    keys up to its own.

    `mask` is added to the scores; None where all keys are the span's own, and for kernels that need
    no mask, as those of CPUs, which work block by block.
    """

    start: int
    stop: int
    length: int
    window: int | None
    table: Tensor
    lengths: Tensor
    mask: Tensor | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanBatch:
    """All prefill spans of a step, for a kernel that takes them at once.

    Span `i` has the rows from `starts[i]` to `starts[i + 1]`, and `lengths[i]` keys from the first
    block in `table[i]` up to its last row; a row sees the last `window` of them up to its own.
    """

    window: int | None
    starts: Tensor
    lengths: Tensor
    table: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionPlan:
    """Which rows attend to which keys, in all layers of one window. With `spans`, there are no
    `prefills`.
    """

    decodes: list[DecodeGroup]
    prefills: list[PrefillSpan]
    spans: SpanBatch | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """One step. `slots` is where each row's key and value go, `sampled` the sampled rows,
    `plans` has one entry for each window that any layer has, None being all tokens.

    Rows and sampled rows are padded to a grid: extra rows store to a spare slot, extra samples
    repeat one.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    sampled: Tensor
    plans: dict[int | None, AttentionPlan]


class Uploader:
    """Numbers from Python to the device; page-locked and asynchronous where that helps."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.pinned = device != "cpu"

    def integers(self, values: list[int] | list[list[int]]) -> Tensor:
        host = torch.tensor(values, dtype=torch.int64, pin_memory=self.pinned)
        return host.to(self.device, non_blocking=True) if self.pinned else host

    def floats(self, values: list[float] | list[list[float]], dtype: torch.dtype) -> Tensor:
        host = torch.tensor(values, dtype=dtype, pin_memory=self.pinned)
        return host.to(self.device, non_blocking=True) if self.pinned else host

    def array(self, values: NDArray[Any]) -> Tensor:
        """On a CPU the array's own memory."""
        host = torch.from_numpy(values)
        return host.pin_memory().to(self.device, non_blocking=True) if self.pinned else host
