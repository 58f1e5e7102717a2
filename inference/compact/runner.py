"""Computes one step: the model's logits, then the sampler. Knows nothing of requests' ends.

Everything here is device-independent; the only wait for the device is reading the drawn tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from inference.compact.batch import Uploader
from inference.compact.eager import EagerModel
from inference.compact.ending import Pick
from inference.compact.graphs import can_record, recorded_if_possible
from inference.compact.models.decoder import Decoder
from inference.compact.models.shape import ModelShape
from inference.compact.native.decoder import load_native
from inference.compact.placement import Placement
from inference.compact.sampler import Sampler
from inference.compact.scheduler import Chunk
from inference.compact.weights import Weights, load_weights


class LoadedModel(Protocol):
    """Weights and cache in some memory, and what computes with them."""

    def forward(self, chunks: list[Chunk]) -> Tensor:
        """Logits `[drawn rows, vocabulary]`, float32, in the order of the chunks; the caller may
        change them, and the next call may overwrite them.
        """


class Runner:
    """A loaded model on its device."""

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

    def run(self, chunks: list[Chunk]) -> list[Pick]:
        """One pick for each row that is drawn from, in the order of the chunks."""
        with torch.inference_mode():
            logits = self.model.forward(chunks)
            return self.sampler.draw(logits, [chunk for chunk in chunks if chunk.draws])
