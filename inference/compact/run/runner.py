"""Computes one step: the model's logits, then the sampler. Knows nothing of requests' ends.

Everything here is device-independent; the only wait for the device is reading the drawn tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from inference.compact.attention.cache import KvCache
from inference.compact.batch.tensors import Uploader
from inference.compact.config.shape import ModelShape
from inference.compact.layers.decoder import Decoder
from inference.compact.load.placement import Placement
from inference.compact.load.weights import Weights, load_weights
from inference.compact.run.eager import EagerModel
from inference.compact.run.graphs import can_record, recorded_if_possible
from inference.compact.run.memory import CudaMemory, DeviceMemory, with_what_is_free
from inference.compact.run.native import load_native
from inference.compact.run.threads import Threads, keep_memory
from inference.compact.sampling.drawn import Drawn
from inference.compact.sampling.sampler import Sampler
from inference.compact.schedule.outputs import SampledToken
from inference.compact.schedule.scheduler import Chunk
from inference.errors import ModelError

log = logging.getLogger("inference.compact")


class LoadedModel(Protocol):
    """Weights and cache in some memory, and what computes with them."""

    def forward(self, chunks: list[Chunk], drawn: Tensor | None = None) -> Tensor:
        """Logits `[rows that need them, vocabulary]`, float32, in the order of the chunks; the
        caller may change them, and the next call may overwrite them. `drawn` has the tokens of
        chunks with a `source`, int64 on the device.
        """


class Runner:
    """`placement` is final: its blocks are those that there are."""

    def __init__(self, model: LoadedModel, placement: Placement) -> None:
        self.model = model
        self.placement = placement
        self.sampler = Sampler(Uploader(placement.device))
        whole = torch.get_num_threads()
        by_torch = placement.device == "cpu" and placement.kernels == "torch"
        if by_torch:
            keep_memory()
        self.threads = Threads(whole) if by_torch and whole > 1 else None

    @classmethod
    def load(cls, folder: Path, shape: ModelShape, placement: Placement) -> Runner:
        """Read the weights; call it in the thread that will run the steps."""
        if placement.threads is not None:
            torch.set_num_threads(placement.threads)
        with torch.inference_mode():
            return cls.over(load_weights(folder, shape, placement), shape, placement)

    @classmethod
    def over(
        cls,
        weights: Weights,
        shape: ModelShape,
        placement: Placement,
        memory: DeviceMemory | None = None,
    ) -> Runner:
        """With weights that are there already, by what computes fastest with them."""
        if placement.kernels == "native":
            return cls(load_native(shape, weights, placement), placement)
        decoder = Decoder(shape, weights, placement)
        eager = EagerModel(decoder, Uploader(placement.device))
        runner = cls(eager, placement)
        if placement.kv_room is not None:
            memory = memory or CudaMemory()
            runner.placement = with_what_is_free(runner.run, shape, placement, memory)
            decoder.cache = KvCache(shape, runner.placement)
        if can_record(decoder):
            runner.model = recorded_if_possible(eager)
        return runner

    def run(self, chunks: list[Chunk]) -> list[SampledToken]:
        """One token for each sampled row, in the order of the chunks."""
        if self.threads is None:
            return self._run(chunks)
        return self.threads.run(partial(self._run, chunks), sum(chunk.count for chunk in chunks))

    def launch(self, chunks: list[Chunk], before: Drawn | None) -> Callable[[], Drawn]:
        """As `LaunchingModel`; on a CPU it is computed when this returns."""
        with torch.inference_mode():
            logits = self._forward(chunks, None if before is None else before.ids)
        return torch.inference_mode()(partial(self._draw, logits, chunks))

    def _run(self, chunks: list[Chunk]) -> list[SampledToken]:
        with torch.inference_mode():
            return self._draw(self._forward(chunks, None), chunks).read()

    def _draw(self, logits: Tensor, chunks: list[Chunk]) -> Drawn:
        if any(chunk.scored_rows for chunk in chunks):
            logits = self.sampler.score(logits, chunks)
        return self.sampler.begin(logits, [chunk for chunk in chunks if chunk.sampled_rows])

    def _forward(self, chunks: list[Chunk], drawn: Tensor | None) -> Tensor:
        """Once more where memory is short: what torch keeps in pieces may serve as a whole. Raises
        `ModelError` if that is not enough.
        """
        try:
            return self.model.forward(chunks, drawn)
        except torch.OutOfMemoryError as error:
            log.warning("a step found no memory and is tried again: %s", error)
        torch.cuda.empty_cache()
        try:
            return self.model.forward(chunks, drawn)
        except torch.OutOfMemoryError as error:
            tokens = sum(chunk.count for chunk in chunks)
            raise ModelError(
                f"a step of {tokens} tokens of {len(chunks)} requests found no memory: take a"
                f" smaller --gpu-memory, --kv-mib, --step-tokens or --credits ({error})"
            ) from error
