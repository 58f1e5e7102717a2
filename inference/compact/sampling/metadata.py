"""The sampling parameters of a batch's rows, worked out once while the rows stay the same."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inference.compact.batch.tensors import Uploader
from inference.compact.sampling.operators import UNCUT, draw_nucleus, draw_top, draw_uncut
from inference.compact.sampling.rng import uniforms
from inference.compact.schedule.request import Sequence
from inference.contract.frames import Sampling

GREEDY_BELOW = 1e-5


class SamplingMetadata:
    """Numbers of the rows that need something, and how the random ones, not greedy, are sampled.

    `index` holds the random rows; None where all are. `kernel_inputs` are the settings of all rows
    for a GPU's kernel; None on a CPU, and where a row needs what the kernel cannot do.
    """

    def __init__(self, sequences: list[Sequence], upload: Uploader) -> None:
        self.sequences = sequences
        params = [each.request.job.sampling for each in sequences]
        self.masked = any(each.mask is not None for each in sequences)
        self.reporting = [row for row, each in enumerate(params) if each.logprobs is not None]
        self.biased = [row for row, each in enumerate(params) if _is_biased(each)]
        self.random = [row for row, each in enumerate(params) if each.temperature >= GREEDY_BELOW]
        self.kernel_inputs: tuple[Tensor, Tensor] | None = None
        if upload.device != "cpu" and not any(params[row].top_k for row in self.random):
            self.kernel_inputs = _kernel_inputs(sequences, upload)
        self.index = None if len(self.random) == len(params) else upload.integers(self.random)
        settings = [params[row] for row in self.random]
        self.temperatures = _column(upload, [each.temperature for each in settings])
        streams = np.array([sequences[row].stream for row in self.random], np.uint64)
        places: dict[str, list[int]] = {}
        for place, each in enumerate(settings):
            places.setdefault(_cut_of(each), []).append(place)
        self.groups = [
            DrawGroup(
                mine if len(places) > 1 else None,
                streams[mine],
                _draw_of(cut, [settings[place] for place in mine], upload),
            )
            for cut, mine in places.items()
        ]


@dataclass(frozen=True, eq=False)
class DrawGroup:
    """Drawn rows that are cut in the same way; `places` are theirs among all, None where all."""

    places: list[int] | None
    streams: NDArray[np.uint64]
    cut: Callable[..., Tensor]

    def draw(self, probs: Tensor, positions: NDArray[np.uint64], scratch: Tensor) -> list[int]:
        """Tokens of this group's rows, whose probabilities and positions these are; `scratch` has
        the shape of `probs` and is overwritten.
        """

        def points(rows: Tensor | None, attempt: int) -> Tensor:
            kept = slice(None) if rows is None else rows.cpu().numpy()
            found = uniforms(self.streams[kept], positions[kept], attempt)
            return torch.from_numpy(found).to(probs.device)

        return [int(token) for token in self.cut(probs, scratch=scratch, points=points).tolist()]


def _is_biased(params: Sampling) -> bool:
    changes = params.logit_bias or params.frequency_penalty or params.presence_penalty
    return bool(changes or params.min_tokens) or params.repetition_penalty != 1.0


def _cut_of(params: Sampling) -> str:
    if params.top_k:
        return "top"
    return "nucleus" if params.top_p < 1.0 or params.min_p > 0.0 else "uncut"


def _draw_of(cut: str, settings: list[Sampling], upload: Uploader) -> Callable[..., Tensor]:
    if cut == "uncut":
        return draw_uncut
    min_p: Tensor | None = None
    if any(each.min_p > 0.0 for each in settings):
        min_p = _column(upload, [each.min_p for each in settings])
    top_p = _column(upload, [each.top_p if each.top_p < 1.0 else UNCUT for each in settings])
    if cut == "nucleus":
        return partial(draw_nucleus, top_p=top_p, min_p=min_p)
    top_k = upload.integers([[each.top_k] for each in settings])
    return partial(draw_top, top_k=top_k, top_p=top_p, min_p=min_p)


def _kernel_inputs(sequences: list[Sequence], upload: Uploader) -> tuple[Tensor, Tensor]:
    """Settings and streams of all rows, as `draw_kernel` takes them."""
    params = [each.request.job.sampling for each in sequences]
    temperatures = [each.temperature for each in params]
    columns = [
        [temperature if temperature >= GREEDY_BELOW else 0.0 for temperature in temperatures],
        [each.top_p if each.top_p < 1.0 else UNCUT for each in params],
        [each.min_p for each in params],
    ]
    streams = np.array([each.stream for each in sequences], np.uint64).view(np.int64)
    return upload.floats(columns, torch.float32), upload.integers(streams.tolist())


def _column(upload: Uploader, values: list[float]) -> Tensor:
    return upload.floats([[value] for value in values], torch.float32)
