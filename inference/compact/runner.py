"""Computes one step: chunks to tensors, the decoder, the sampler. Knows nothing of requests' ends.

Everything here is device-independent; the only wait for the device is reading the drawn tokens.
"""

from __future__ import annotations

from pathlib import Path

import torch

from inference.compact.batch import AttentionPlan, Batch, Uploader
from inference.compact.decode import plan_decodes
from inference.compact.ending import Pick
from inference.compact.models.decoder import Decoder
from inference.compact.models.shape import ModelShape
from inference.compact.placement import Placement
from inference.compact.prefill import plan_prefills
from inference.compact.rounding import round_up_rows
from inference.compact.sampler import Sampler
from inference.compact.scheduler import Chunk
from inference.compact.weights import load_weights


class Runner:
    """A loaded model on its device."""

    def __init__(self, decoder: Decoder, placement: Placement) -> None:
        self.decoder = decoder
        self.placement = placement
        self.upload = Uploader(placement.device)
        self.sampler = Sampler(self.upload)

    @classmethod
    def load(cls, folder: Path, shape: ModelShape, placement: Placement) -> Runner:
        """Read the weights; call it in the thread that will run the steps."""
        if placement.threads is not None:
            torch.set_num_threads(placement.threads)
        with torch.inference_mode():
            weights = load_weights(folder, shape, placement)
            return cls(Decoder(shape, weights, placement), placement)

    def run(self, chunks: list[Chunk]) -> list[Pick]:
        """One pick for each row that is drawn from, in the order of the chunks."""
        with torch.inference_mode():
            batch = self._batch(chunks)
            drawn = [chunk for chunk in chunks if chunk.draws]
            rows = sum(chunk.draws for chunk in drawn)
            return self.sampler.draw(self.decoder.forward(batch)[:rows], drawn)

    def _batch(self, chunks: list[Chunk]) -> Batch:
        size, dtype = self.placement.block_size, self.placement.torch_dtype
        decodes = sorted((c for c in chunks if c.count == 1), key=lambda chunk: chunk.start)
        prefills = [chunk for chunk in chunks if chunk.count > 1]
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        end_row: dict[int, int] = {}
        for chunk in decodes + prefills:
            span = range(chunk.start, chunk.start + chunk.count)
            blocks = chunk.sequence.blocks
            tokens += chunk.tokens
            positions += span
            slots += [blocks[place // size] * size + place % size for place in span]
            end_row[id(chunk)] = len(tokens)
        sampled: list[int] = []
        for chunk in chunks:
            end = end_row[id(chunk)]
            sampled += range(end - chunk.draws, end)
        spare_rows = round_up_rows(len(tokens)) - len(tokens)
        spare_draws = round_up_rows(len(sampled)) - len(sampled)
        return Batch(
            tokens=self.upload.integers(tokens + [0] * spare_rows),
            positions=self.upload.integers(positions + [0] * spare_rows),
            slots=self.upload.integers(slots + [self.decoder.cache.spare_slot] * spare_rows),
            sampled=self.upload.integers(sampled + sampled[:1] * spare_draws),
            plans={
                window: AttentionPlan(
                    decodes=plan_decodes(decodes, size, self.upload, dtype, window),
                    prefills=plan_prefills(
                        prefills, len(decodes), size, self.upload, dtype, window
                    ),
                )
                for window in set(self.decoder.shape.windows)
            },
        )
