"""How large the KV cache of a GPU may be: what is left beside the weights and the largest step."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import torch

from inference.compact.config.shape import ModelShape
from inference.compact.load.placement import KvRoom, Placement
from inference.compact.options import MEBIBYTE
from inference.compact.run.made_up import made_up_chunk
from inference.compact.schedule.scheduler import Chunk
from inference.errors import ModelError

log = logging.getLogger("inference.compact")


class DeviceMemory(Protocol):
    """Memory of one device, in bytes."""

    def peak(self, step: Callable[[], object]) -> int:
        """What a step takes at most, beyond what is held before it."""

    def free_and_total(self) -> tuple[int, int]:
        """What nobody holds, other processes included, and all."""


class CudaMemory:
    """The current CUDA device."""

    def peak(self, step: Callable[[], object]) -> int:
        """The first of two runs makes what libraries then keep."""
        step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - held

    def free_and_total(self) -> tuple[int, int]:
        """Without what torch keeps for later."""
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()


def with_what_is_free(
    run: Callable[[list[Chunk]], object],
    shape: ModelShape,
    placement: Placement,
    memory: DeviceMemory,
) -> Placement:
    """The placement with all blocks for which there is room; raises `ModelError` if there is none.

    `run` computes a step, with a cache of one block.
    """
    room = placement.kv_room
    if room is None:
        return placement
    chunks = largest_step(shape, room, placement.block_size)
    peak = memory.peak(lambda: run(chunks))
    free, total = memory.free_and_total()
    left = int(room.share * total) - (total - free) - peak
    blocks = left // placement.block_bytes(shape)
    words = (
        f"{left // MEBIBYTE} of {total // MEBIBYTE} MiB, beside {(total - free) // MEBIBYTE} in use"
        f" and {peak // MEBIBYTE} for a step of {room.step_tokens} tokens"
    )
    if blocks < 1:
        raise ModelError(f"gpu_memory: {room.share:g} leaves the KV cache no block: {words}")
    log.info("the KV cache takes %s", words)
    return replace(placement, kv_blocks=blocks, kv_room=None)


def largest_step(shape: ModelShape, room: KvRoom, block_size: int) -> list[Chunk]:
    """As many requests as may run, each with a drawn row: all but the last ones decode, those fill
    the step at the end of their context. Their keys and values all go to the first block.
    """
    counts = [1] * (room.running_max - 1)
    while (left := room.step_tokens - sum(counts)) > 0:
        counts.append(min(left, shape.context_window))
    lengths = [1 if count == 1 else shape.context_window for count in counts]
    return [
        made_up_chunk([0] * length, count, [0] * -(-length // block_size), block_size)
        for count, length in zip(counts, lengths, strict=True)
    ]
