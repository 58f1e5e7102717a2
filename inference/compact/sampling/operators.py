"""Samples columns from rows of probabilities: all of a row, or what top-k, top-p and min-p leave.

Everything is by inversion of one uniform number per attempt: noise for a whole vocabulary
(Gumbel) would cost more than the model of a small step. Nothing sorts a whole vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from inference.compact.sampling.rng import TRIES_MAX

# Columns summed together, so that only a few sums are scanned one after the other.
GROUP = 128
# Columns of which a search for the largest looks at only the best.
MEMBERS = 16
# Below so many numbers the search scans them all.
SEARCH_MIN = 16384
# A top-p that cuts nothing, whatever rounding makes of a row's sum.
UNCUT = 2.0
TINY = torch.finfo(torch.float32).tiny
BELOW_ONE = 1.0 - 2.0**-24

# Uniform numbers for these rows (None: all) at an attempt.
Points = Callable[[Tensor | None, int], Tensor]


def invert(weights: Tensor, points: Tensor) -> Tensor:
    """The column `[rows]` in which each point of (0, 1) falls, columns as wide as their weights.

    The first sum that reaches the point ends a column of some width, so a column of weight 0 is
    never found. Rows that are not numbers give some column.
    """
    rows, columns = weights.shape
    if columns % GROUP:
        weights = pad(weights, (0, GROUP - columns % GROUP))
    groups = weights.view(rows, -1, GROUP)
    sums = groups.sum(dim=-1).double()
    ends = sums.cumsum(dim=-1)
    targets = points[:, None] * ends[:, -1:]
    chosen = torch.searchsorted(ends, targets).clamp_(max=ends.shape[1] - 1)
    before = ends.gather(1, chosen) - sums.gather(1, chosen)
    inside = groups[torch.arange(rows, device=weights.device), chosen[:, 0]].double().cumsum(dim=-1)
    # Rounding may carry the rest of the way out of the group on either side.
    rest = (targets - before).clamp_(min=TINY).minimum(inside[:, -1:])
    column = chosen * GROUP + torch.searchsorted(inside, rest)
    return column[:, 0].clamp_(max=columns - 1)


def draw_uncut(probs: Tensor, *, scratch: Tensor, points: Points) -> Tensor:
    return invert(probs, points(None, 0))


def draw_nucleus(
    probs: Tensor, *, top_p: Tensor, min_p: Tensor | None, scratch: Tensor, points: Points
) -> Tensor:
    """From what top-p `[rows, 1]` (`UNCUT` for all) and min-p `[rows, 1]` leave of each row.

    By rejection: draw, and keep the token if less than top-p lies above it. Otherwise nothing at
    or below it can be kept either, so the next attempt draws from what lies above. That is the
    distribution cut and normalised, without sorting (FlashInfer samples so on GPUs). Tokens of
    equal probability stay or go together. `scratch` has the shape of `probs` and is overwritten:
    fresh memory of this size costs more than the arithmetic.
    """
    weights = probs
    if min_p is not None:
        least = (min_p * probs.amax(dim=-1, keepdim=True)).clamp_(min=TINY)
        weights = torch.threshold_(torch.div(probs, least, out=scratch), BELOW_ONE, 0.0)
    tokens = found = invert(weights, points(None, 0))
    rows = torch.arange(len(probs), device=probs.device)
    for attempt in range(1, TRIES_MAX):
        # A quotient of two numbers of which one is larger never rounds to 1.
        prob = probs.gather(1, found[:, None])
        above = torch.threshold_(torch.div(probs, prob, out=scratch[: len(probs)]), 1.0, 0.0)
        mass = above.sum(dim=-1, keepdim=True) * prob
        # Written so that a row which is not a number counts as done.
        again = ((mass >= top_p) & (mass > 0.0)).nonzero()[:, 0]
        if not len(again):
            break
        rows, probs, top_p = rows[again], probs[again], top_p[again]
        found = invert(above[again], points(rows, attempt))
        tokens[rows] = found
    return tokens


def draw_top(
    probs: Tensor,
    *,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor | None,
    scratch: Tensor,
    points: Points,
) -> Tensor:
    """From what top-k `[rows, 1]`, then top-p of that, then min-p leave of each row."""
    width = min(int(top_k.max()), probs.shape[1])
    values, tokens = top_columns(probs, width)
    columns = torch.arange(width, device=probs.device)
    values = values.double() * (columns < top_k)
    before = values.cumsum(dim=-1) - values
    inside = before < top_p * values.sum(dim=-1, keepdim=True)
    if min_p is not None:
        inside &= values >= min_p * values[:, :1]
    inside[:, 0] = True
    sums = (values * inside).cumsum(dim=-1)
    targets = points(None, 0)[:, None] * sums[:, -1:]
    found = torch.searchsorted(sums, targets).clamp_(max=width - 1)
    return tokens.gather(1, found)[:, 0]


def top_columns(table: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The `width` largest values of each row and their columns, largest first.

    Columns are grouped by their remainder: the largest lie in the `width` groups whose best are
    largest, so most columns are only passed over for their group's best.
    """
    rows, columns = table.shape
    if rows * columns < SEARCH_MIN or width * MEMBERS * 2 > columns or columns % MEMBERS:
        return table.topk(width, dim=-1)
    groups = table.view(rows, MEMBERS, -1)
    chosen = groups.amax(dim=1).topk(width, dim=-1, sorted=False)[1]
    candidates = groups.gather(2, chosen[:, None].expand(-1, MEMBERS, -1)).view(rows, -1)
    values, places = candidates.topk(width, dim=-1)
    return values, places // width * groups.shape[2] + chosen.gather(1, places % width)
