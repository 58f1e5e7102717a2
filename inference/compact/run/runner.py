"""Computes one step: the model's logits, then the sampler. Knows nothing of requests' ends.

Everything here is device-independent; the only wait for the device is reading the drawn tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from inference.compact.batch.tensors import Uploader
from inference.compact.config.shape import ModelShape
from inference.compact.layers.decoder import Decoder
from inference.compact.load.placement import Placement
from inference.compact.load.weights import Weights, load_weights
from inference.compact.run.eager import EagerModel
from inference.compact.run.graphs import can_record, recorded_if_possible
from inference.compact.run.native import load_native
from inference.compact.sampling.sampler import Sampler
from inference.compact.schedule.outputs import SampledToken
from inference.compact.schedule.scheduler import Chunk


class LoadedModel(Protocol):
    """Weights and cache in some memory, and what computes with them."""

    def forward(self, chunks: list[Chunk]) -> Tensor:
        """Logits `[rows that need them, vocabulary]`, float32, in the order of the chunks; the
        caller may change them, and the next call may overwrite them.
        """


class Runner:
    def __init__(self, model: LoadedModel, placement: Placement) -> None:
        self.model = model
        self.sampler = Sampler(Uploader(placement.device))

    @classmethod
    def load(cls, folder: Path, shape: ModelShape, placement: Placement) -> Runner:
        """Read the weights; call it in the thread that will run the steps."""
        if placement.threads is not None:
            torch.set_num_threads(placement.threads)
        with torch.inference_mode():
            return cls.over(load_weights(folder, shape, placement), shape, placement)

    @classmethod
    def over(cls, weights: Weights, shape: ModelShape, placement: Placement) -> Runner:
        """With weights that are there already, by what computes fastest with them."""
        model: LoadedModel
        if placement.kernels == "native":
            model = load_native(shape, weights, placement)
        else:
            decoder = Decoder(shape, weights, placement)
            eager = EagerModel(decoder, Uploader(placement.device))
            model = recorded_if_possible(eager) if can_record(decoder) else eager
        return cls(model, placement)

    def run(self, chunks: list[Chunk]) -> list[SampledToken]:
        """One token for each sampled row, in the order of the chunks."""
        with torch.inference_mode():
            logits = self.model.forward(chunks)
            if any(chunk.scored_rows for chunk in chunks):
                logits = self.sampler.score(logits, chunks)
            return self.sampler.draw(logits, [chunk for chunk in chunks if chunk.sampled_rows])
