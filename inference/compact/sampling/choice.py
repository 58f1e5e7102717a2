"""What samples a step's tokens on a GPU: the Triton kernel where that runs and agrees."""

import logging
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inference.compact.candidates import Candidates, first_that_agrees
from inference.compact.sampling.operators import UNCUT, draw_nucleus
from inference.compact.sampling.rng import uniforms

log = logging.getLogger("inference.compact")

# Of logits, settings, streams and positions: tokens and highest logits; see `draw_kernel`.
DrawRows = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[list[int], list[float]]]
KERNELS: Candidates = (("inference.compact.sampling.kernel", "draw_rows"),)
# The rows of a trial: temperature, top-p and min-p; the first is greedy.
SETTINGS = (
    (0.0, UNCUT, 0.0), (1.0, UNCUT, 0.0), (0.7, 0.8, 0.0), (1.3, 0.5, 0.05), (2.0, UNCUT, 0.1),
    (1.0, 0.1, 0.0),
)  # fmt: skip
# More than one of the kernel's tiles, the last not full.
COLUMNS = 9001


def choose_draw(device: str, candidates: Candidates = KERNELS) -> DrawRows | None:
    """None where torch's operators sample: on a CPU, and with a warning where no kernel can."""
    if device == "cpu":
        return None
    found: DrawRows | None = first_that_agrees(
        candidates, partial(agrees_with_operators, device=device)
    )
    if found is None:
        log.warning("tokens are drawn by torch's operators, which is slower")
    return found


def agrees_with_operators(draw_rows: DrawRows, device: str) -> bool:
    """Whether a kernel samples what torch's operators sample from the same random numbers."""
    random = torch.Generator().manual_seed(1)
    logits = torch.randn(len(SETTINGS), COLUMNS, generator=random).mul_(3.0).to(device)
    asked = torch.tensor(SETTINGS, device=device)
    streams = np.arange(1, len(SETTINGS) + 1, dtype=np.uint64) << np.uint64(60)
    positions = np.arange(len(SETTINGS), dtype=np.uint64) * np.uint64(7)
    numbers = (torch.from_numpy(each.view(np.int64)).to(device) for each in (streams, positions))
    tokens, highest = draw_rows(logits, asked.T.contiguous(), *numbers)
    expected = logits.max(dim=-1)
    drawn = _by_operators(logits[1:], asked[1:], streams[1:], positions[1:])
    return tokens == [int(expected.indices[0]), *drawn] and highest == expected.values.tolist()


def _by_operators(
    logits: Tensor, asked: Tensor, streams: NDArray[np.uint64], positions: NDArray[np.uint64]
) -> list[int]:
    temperatures, top_p, min_p = asked[:, :1], asked[:, 1:2], asked[:, 2:]
    probs = (logits / temperatures).softmax(dim=-1)

    def points(rows: Tensor | None, attempt: int) -> Tensor:
        kept = slice(None) if rows is None else rows.cpu().numpy()
        return torch.from_numpy(uniforms(streams[kept], positions[kept], attempt)).to(logits.device)

    scratch = torch.empty_like(probs)
    found = draw_nucleus(probs, top_p=top_p, min_p=min_p, scratch=scratch, points=points)
    return [int(token) for token in found.tolist()]
