"""What the rows of a batch ask of the sampler, worked out once while they stay the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inference.compact.batch import Uploader
from inference.compact.chance import uniforms
from inference.compact.drawing import UNCUT, draw_nucleus, draw_top, draw_uncut
from inference.compact.request import Sequence
from inference.contract.frames import Sampling

GREEDY_BELOW = 1e-5


class RowPlan:
    """Numbers of the rows that need something, and how those that are not greedy are drawn.

    `index` holds the rows that are drawn; None where all are. `for_kernel` is what a GPU's kernel
    needs to know of all rows; None on a CPU, and where a row wants what it cannot do.
    """

    def __init__(self, sequences: list[Sequence], upload: Uploader) -> None:
        self.sequences = sequences
        asked = [each.request.job.sampling for each in sequences]
        self.masked = any(each.mask is not None for each in sequences)
        self.reporting = [row for row, each in enumerate(asked) if each.logprobs is not None]
        self.shifted = [row for row, each in enumerate(asked) if _is_shifted(each)]
        self.drawn = [row for row, each in enumerate(asked) if each.temperature >= GREEDY_BELOW]
        self.for_kernel: tuple[Tensor, Tensor] | None = None
        if upload.device != "cpu" and not any(asked[row].top_k for row in self.drawn):
            self.for_kernel = _for_kernel(sequences, upload)
        self.index = None if len(self.drawn) == len(asked) else upload.integers(self.drawn)
        settings = [asked[row] for row in self.drawn]
        self.temperatures = _column(upload, [each.temperature for each in settings])
        streams = np.array([sequences[row].stream for row in self.drawn], np.uint64)
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


class DrawGroup:
    """Drawn rows that are cut in the same way; `places` are theirs among all, None where all."""

    def __init__(
        self,
        places: list[int] | None,
        streams: NDArray[np.uint64],
        draw: Callable[..., Tensor],
    ) -> None:
        self.places = places
        self.streams = streams
        self._draw = draw

    def draw(self, shares: Tensor, positions: NDArray[np.uint64], scratch: Tensor) -> list[int]:
        """Tokens of this group's rows, whose probabilities and positions these are; `scratch` has
        the shape of `shares` and is overwritten.
        """

        def points(rows: Tensor | None, attempt: int) -> Tensor:
            kept = slice(None) if rows is None else rows.cpu().numpy()
            found = uniforms(self.streams[kept], positions[kept], attempt)
            return torch.from_numpy(found).to(shares.device)

        return [int(token) for token in self._draw(shares, scratch=scratch, points=points).tolist()]


def _is_shifted(asked: Sampling) -> bool:
    return bool(asked.logit_bias or asked.frequency_penalty or asked.presence_penalty)


def _cut_of(asked: Sampling) -> str:
    if asked.top_k:
        return "top"
    return "nucleus" if asked.top_p < 1.0 or asked.min_p > 0.0 else "uncut"


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


def _for_kernel(sequences: list[Sequence], upload: Uploader) -> tuple[Tensor, Tensor]:
    """Settings and streams of all rows, as `draw_kernel` takes them."""
    asked = [each.request.job.sampling for each in sequences]
    temperatures = [each.temperature for each in asked]
    columns = [
        [temperature if temperature >= GREEDY_BELOW else 0.0 for temperature in temperatures],
        [each.top_p if each.top_p < 1.0 else UNCUT for each in asked],
        [each.min_p for each in asked],
    ]
    streams = np.array([each.stream for each in sequences], np.uint64).view(np.int64)
    return upload.floats(columns, torch.float32), upload.integers(streams.tolist())


def _column(upload: Uploader, values: list[float]) -> Tensor:
    return upload.floats([[value] for value in values], torch.float32)
