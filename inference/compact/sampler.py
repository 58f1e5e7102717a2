"""Draws the next token of each row: penalties, bias, temperature, top-k, top-p, min-p, seed.

One uniform number per token comes from a hash of (seed, choice, position), so a draw depends on
its own request alone, survives preemption, and is repeatable. The limit: a batch's make-up may
change the last bits of the logits themselves, which can tip a draw that lies on an edge.
"""

from __future__ import annotations

from hashlib import blake2b

import torch
from torch import Tensor

from inference.compact.batch import Uploader
from inference.compact.ending import Pick
from inference.compact.request import Sequence
from inference.contract.frames import Sampling, TokenLogprob

# Candidates looked at before the whole vocabulary is sorted: enough for nearly every top-p.
CANDIDATES = 64
UNIFORM_BITS = 53
GREEDY_BELOW = 1e-5


def uniform(seed: int, choice: int, position: int) -> float:
    """A number in (0, 1), the same for the same arguments everywhere."""
    key = f"{seed}/{choice}/{position}".encode()
    bits = int.from_bytes(blake2b(key, digest_size=8).digest()) >> (64 - UNIFORM_BITS)
    return (bits + 0.5) / (1 << UNIFORM_BITS)


class Sampler:
    """Turns logits into picks."""

    def __init__(self, upload: Uploader) -> None:
        self.upload = upload

    def draw(self, logits: Tensor, sequences: list[Sequence]) -> list[Pick]:
        """One pick per row of float32 logits, which may be changed in place."""
        if not sequences:
            return []
        asked = [each.request.job.sampling for each in sequences]
        reported = self._log_probabilities(logits, asked)
        self._adjust(logits, sequences, asked)
        highest, tokens = logits.max(dim=-1)
        drawn = [row for row, each in enumerate(asked) if each.temperature >= GREEDY_BELOW]
        if drawn:
            self._draw_rows(logits, tokens, drawn, sequences)
        chosen = tokens.tolist()
        broken = highest.isnan().tolist()
        return [
            Pick(None) if broken[row] else Pick(chosen[row], _report(reported, row, chosen[row]))
            for row in range(len(sequences))
        ]

    def _log_probabilities(self, logits: Tensor, asked: list[Sampling]) -> _Reported:
        """What the model itself thinks, before penalties and temperature, for rows that ask."""
        rows = [row for row, each in enumerate(asked) if each.logprobs is not None]
        if not rows:
            return {}
        table = logits.index_select(0, self.upload.integers(rows)).log_softmax(dim=-1)
        count = min(max(asked[row].logprobs or 0 for row in rows), table.shape[1])
        values, tokens = (part.tolist() for part in table.topk(count, dim=-1))
        reported: _Reported = {}
        for place, row in enumerate(rows):
            width = asked[row].logprobs or 0
            top = list(zip(tokens[place][:width], values[place][:width], strict=True))
            reported[row] = (table[place], top)
        return reported

    def _adjust(self, logits: Tensor, sequences: list[Sequence], asked: list[Sampling]) -> None:
        """Subtract penalties for tokens generated so far and add the bias."""
        rows: list[int] = []
        tokens: list[int] = []
        changes: list[float] = []
        for row, (sequence, each) in enumerate(zip(sequences, asked, strict=True)):
            change = dict(each.logit_bias)
            if each.frequency_penalty or each.presence_penalty:
                for token, count in sequence.counts.items():
                    penalty = each.frequency_penalty * count + each.presence_penalty
                    change[token] = change.get(token, 0.0) - penalty
            rows += [row] * len(change)
            tokens += change.keys()
            changes += change.values()
        if rows:
            where = (self.upload.integers(rows), self.upload.integers(tokens))
            logits.index_put_(where, self.upload.floats(changes, logits.dtype), accumulate=True)

    def _draw_rows(
        self, logits: Tensor, tokens: Tensor, rows: list[int], sequences: list[Sequence]
    ) -> None:
        """Overwrite the greedy tokens of rows that are drawn."""
        index = self.upload.integers(rows)
        asked = [sequences[row].request.job.sampling for row in rows]
        temperatures = self.upload.floats([each.temperature for each in asked], logits.dtype)
        scaled = logits.index_select(0, index) / temperatures[:, None]
        points = self.upload.floats([_point(sequences[row]) for row in rows], torch.float64)
        plain = [place for place, each in enumerate(asked) if not _is_cut(each)]
        cut = [place for place, each in enumerate(asked) if _is_cut(each)]
        for places, draw in ((plain, self._draw_plain), (cut, self._draw_cut)):
            if places:
                picked = self.upload.integers(places)
                wanted = [asked[place] for place in places]
                found = draw(scaled.index_select(0, picked), points.index_select(0, picked), wanted)
                tokens.index_copy_(0, index.index_select(0, picked), found)

    def _draw_plain(self, scaled: Tensor, points: Tensor, asked: list[Sampling]) -> Tensor:
        """From the whole distribution."""
        return _invert(scaled.softmax(dim=-1, dtype=torch.float64), points)

    def _draw_cut(self, scaled: Tensor, points: Tensor, asked: list[Sampling]) -> Tensor:
        """From what top-k, then top-p, then min-p leave. A sorted prefix of the vocabulary is
        enough for most rows; where its mass does not decide the cut, all of it is sorted.
        """
        vocabulary = scaled.shape[1]
        count = min(max(CANDIDATES, *(each.top_k for each in asked)), vocabulary)
        total = scaled.logsumexp(dim=-1, keepdim=True)
        limits = self._limits(asked, vocabulary)
        values, tokens = scaled.topk(count, dim=-1)
        kept, decided = _cut((values - total).exp().double(), *limits)
        if count < vocabulary and not bool(decided.all()):
            values, tokens = scaled.sort(dim=-1, descending=True)
            kept, _ = _cut((values - total).exp().double(), *limits)
        return tokens.gather(1, _invert(kept, points)[:, None])[:, 0]

    def _limits(self, asked: list[Sampling], vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
        """Columns of top-k (all of it for 0), top-p and min-p."""
        top_k = self.upload.integers([[each.top_k or vocabulary] for each in asked])
        top_p = self.upload.floats([[each.top_p] for each in asked], torch.float64)
        min_p = self.upload.floats([[each.min_p] for each in asked], torch.float64)
        return top_k, top_p, min_p


_Reported = dict[int, tuple[Tensor, list[tuple[int, float]]]]


def _report(reported: _Reported, row: int, token: int) -> TokenLogprob | None:
    if row not in reported:
        return None
    table, top = reported[row]
    return TokenLogprob(token=token, logprob=float(table[token]), top=top)


def _is_cut(asked: Sampling) -> bool:
    return asked.top_k > 0 or asked.top_p < 1.0 or asked.min_p > 0.0


def _point(sequence: Sequence) -> float:
    return uniform(sequence.request.seed, sequence.choice, sequence.generated)


def _cut(
    probabilities: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor
) -> tuple[Tensor, Tensor]:
    """Zero what is cut from rows sorted downwards; also, per row, whether the columns suffice.

    Top-p counts the mass that top-k has left. The first column always stays.
    """
    columns = torch.arange(probabilities.shape[1], device=probabilities.device)
    within_k = probabilities * (columns < top_k)
    limited = top_k <= probabilities.shape[1]
    mass = torch.where(limited, within_k.sum(dim=-1, keepdim=True), 1.0)
    before = within_k.cumsum(dim=-1) - within_k
    inside = (before < top_p * mass) & (within_k >= min_p * probabilities[:, :1])
    inside[:, 0] = True
    decided = limited | ~inside[:, -1:]
    return within_k * inside, decided


def _invert(weights: Tensor, points: Tensor) -> Tensor:
    """The column in which each point of (0, 1) falls, columns as wide as their weights.

    The first sum that reaches the point ends a column of some width, never a cut one.
    """
    sums = weights.cumsum(dim=-1)
    return torch.searchsorted(sums, points[:, None] * sums[:, -1:])[:, 0]
