"""Draws the next token of each row: mask, bias, penalties, temperature, top-k, top-p, min-p, seed.

Order: the model's own log probabilities are taken first, as OpenAI's API reports them. The mask,
the bias and the penalties change logits; they decide greedy rows, too. Temperature comes next,
then top-k, top-p of what is left, then min-p relative to the best: the order of `transformers`
(`GenerationMixin._get_logits_processor`). A draw takes its random numbers by counter from the
stream of its own choice, so it depends on its request alone. The limit: the make-up of a batch may
change the last bits of the logits themselves, which can tip a draw that lies on an edge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf, isfinite

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inference.compact.batch import Uploader
from inference.compact.draw_choice import choose_draw
from inference.compact.drawing import top_columns
from inference.compact.ending import Pick
from inference.compact.mask import WORD_BITS
from inference.compact.request import Sequence
from inference.compact.rows import RowPlan
from inference.compact.scheduler import Chunk
from inference.contract.parts import TokenLogprob

# What an alternative without any probability is reported as: JSON knows no infinity.
LOGPROB_MIN = -9999.0


class Sampler:
    """Turns logits into picks. What a batch asks for is worked out once while it stays the same."""

    def __init__(self, upload: Uploader) -> None:
        self.upload = upload
        self._draw_rows = choose_draw(upload.device)
        self._plan = RowPlan([], upload)
        self._kept = torch.empty(0, device=upload.device)

    def draw(self, logits: Tensor, chunks: list[Chunk]) -> list[Pick]:
        """One pick for each row that the chunks draw from; `logits` `[rows, vocabulary]` float32
        may be changed in place.
        """
        sequences = [chunk.sequence for chunk in chunks for _ in range(chunk.draws)]
        if not sequences:
            return []
        if sequences != self._plan.sequences:
            self._plan = RowPlan(sequences, self.upload)
        plan = self._plan
        reported = self._log_probabilities(logits, plan)
        if plan.masked:
            _mask(logits, chunks)
        if plan.shifted:
            self._shift(logits, plan.shifted, chunks)
        tokens, highest = self._take(logits, plan, chunks)
        # Not finite: not a number, or nothing that may come next.
        return [
            Pick(tokens[row], _report(reported, row, tokens[row])) if isfinite(best) else Pick(None)
            for row, best in enumerate(highest)
        ]

    def _take(
        self, logits: Tensor, plan: RowPlan, chunks: list[Chunk]
    ) -> tuple[list[int], list[float]]:
        """A token of each row, and its highest logit."""
        if self._draw_rows is not None and plan.for_kernel is not None:
            generated = [each.generated + len(ahead) for each, ahead in _drawn_rows(chunks)]
            positions = self.upload.integers(generated)
            return self._draw_rows(logits, *plan.for_kernel, positions)
        tokens, highest = _highest(logits)
        if plan.drawn:
            for row, token in zip(plan.drawn, self._drawn(logits, plan, chunks), strict=True):
                tokens[row] = token
        return tokens, highest

    def _log_probabilities(self, logits: Tensor, plan: RowPlan) -> _Reported:
        """What the model itself thinks, before anything is changed, for rows that ask."""
        rows = plan.reporting
        if not rows:
            return {}
        table = logits.index_select(0, self.upload.integers(rows)).log_softmax(dim=-1)
        table.clamp_(min=LOGPROB_MIN)
        widths = [plan.sequences[row].request.job.sampling.logprobs or 0 for row in rows]
        values, tokens = (
            part.tolist() for part in top_columns(table, min(max(widths), table.shape[1]))
        )
        return {
            row: (
                table[place],
                list(zip(tokens[place][:width], values[place][:width], strict=True)),
            )
            for place, (row, width) in enumerate(zip(rows, widths, strict=True))
        }

    def _shift(self, logits: Tensor, shifted: list[int], chunks: list[Chunk]) -> None:
        """Add the bias and subtract penalties for what was generated before each row."""
        wanted = set(shifted)
        places: list[NDArray[np.int64]] = []
        changes: list[NDArray[np.float32]] = []
        for row, (sequence, ahead) in enumerate(_drawn_rows(chunks)):
            if row in wanted:
                for tokens, change in _changes(sequence, ahead):
                    places.append(tokens + row * logits.shape[1])
                    changes.append(change)
        where = torch.from_numpy(np.concatenate(places)).to(logits.device)
        what = torch.from_numpy(np.concatenate(changes)).to(logits.device)
        logits.view(-1).index_add_(0, where, what)

    def _drawn(self, logits: Tensor, plan: RowPlan, chunks: list[Chunk]) -> list[int]:
        """Tokens of the rows that are not greedy; `logits` serves as scratch memory then."""
        generated = [each.generated + len(ahead) for each, ahead in _drawn_rows(chunks)]
        positions = np.array(generated, np.uint64)[plan.drawn]
        scaled = logits if plan.index is None else logits.index_select(0, plan.index)
        scaled /= plan.temperatures
        shares = torch.softmax(scaled, dim=-1, out=self._room(*scaled.shape))
        tokens = [0] * len(plan.drawn)
        for group in plan.groups:
            if group.places is None:
                return group.draw(shares, positions, scaled)
            picked = shares.index_select(0, self.upload.integers(group.places))
            found = group.draw(picked, positions[group.places], scaled[: len(picked)])
            for place, token in zip(group.places, found, strict=True):
                tokens[place] = token
        return tokens

    def _room(self, rows: int, columns: int) -> Tensor:
        """Memory that is kept from step to step, since touching fresh pages costs more than the
        arithmetic that fills them.
        """
        if self._kept.numel() < rows * columns:
            self._kept = torch.empty(rows * columns, device=self.upload.device)
        return self._kept[: rows * columns].view(rows, columns)


_Reported = dict[int, tuple[Tensor, list[tuple[int, float]]]]


def _report(reported: _Reported, row: int, token: int) -> TokenLogprob | None:
    if row not in reported:
        return None
    table, top = reported[row]
    return TokenLogprob(token=token, logprob=float(table[token]), top=top)


def _drawn_rows(chunks: list[Chunk]) -> Iterator[tuple[Sequence, list[int]]]:
    """Each drawn row's sequence and the drafts that it takes for granted."""
    for chunk in chunks:
        for count in range(chunk.draws):
            yield chunk.sequence, chunk.drafts[:count]


def _highest(logits: Tensor) -> tuple[list[int], list[float]]:
    """The greedy token of each row and its logit. On a CPU, numpy is ten times as fast as torch."""
    if logits.device.type == "cpu":
        tokens = logits.numpy().argmax(axis=-1)
        return tokens.tolist(), logits.numpy()[np.arange(len(tokens)), tokens].tolist()
    values, columns = logits.max(dim=-1)
    # One wait for the device, not two.
    both = torch.stack((columns.double(), values.double())).tolist()
    return [int(column) for column in both[0]], both[1]


def _changes(
    sequence: Sequence, ahead: list[int]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Tokens, and what is added to their logits; a token may come twice."""
    asked = sequence.request.job.sampling
    yield _keys(asked.logit_bias), _values(asked.logit_bias)
    if asked.frequency_penalty or asked.presence_penalty:
        counts = sequence.counts
        if ahead:
            counts = Counter(counts)
            counts.update(ahead)
        yield _keys(counts), -asked.frequency_penalty * _values(counts) - asked.presence_penalty


def _keys(table: Mapping[int, float]) -> NDArray[np.int64]:
    return np.fromiter(table, np.int64, len(table))


def _values(table: Mapping[int, float]) -> NDArray[np.float32]:
    return np.fromiter(table.values(), np.float32, len(table))


def _mask(logits: Tensor, chunks: list[Chunk]) -> None:
    """Minus infinity for what may not come next. A draft that may not come next cannot be drawn,
    so the rows behind it are of no use and stay as they are.
    """
    words = -(-logits.shape[1] // WORD_BITS)
    bits = bytearray(words * WORD_BITS // 8)
    first = 0
    for chunk in chunks:
        mask, accepted = chunk.sequence.mask, 0
        if mask is not None:
            for row in range(first, first + chunk.draws):
                mask.fill(bits)
                allowed = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
                banned = torch.from_numpy(allowed[: logits.shape[1]] == 0)
                logits[row].masked_fill_(banned.to(logits.device), -inf)
                if accepted == len(chunk.drafts) or not mask.accept(chunk.drafts[accepted]):
                    break
                accepted += 1
            mask.rollback(accepted)
        first += chunk.draws
