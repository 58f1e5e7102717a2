"""Samples the next token of a row: mask, bias, penalties, temperature, top-k, top-p, min-p, seed.

Order: the model's own log probabilities are taken first, as OpenAI's API reports them. The mask,
the bias and the penalties change logits; they decide greedy rows, too. Temperature comes next,
then top-k, top-p of what is left, then min-p relative to the best: the order of `transformers`
(`GenerationMixin._get_logits_processor`). A sample takes its random numbers by counter from the
stream of its choice, so it depends only on its request. The limit: the make-up of a batch may
change the last bits of the logits themselves, which can tip a sample that lies on an edge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf, isfinite

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inference.compact.batch.tensors import Uploader
from inference.compact.sampling.choice import choose_draw
from inference.compact.sampling.metadata import SamplingMetadata
from inference.compact.sampling.operators import top_columns
from inference.compact.schedule.mask import WORD_BITS
from inference.compact.schedule.outputs import SampledToken
from inference.compact.schedule.request import Sequence
from inference.compact.schedule.scheduler import Chunk
from inference.contract.parts import TokenLogprob

# What an alternative without any probability is reported as: JSON has no infinity.
LOGPROB_MIN = -9999.0


class Sampler:
    """Turns logits into tokens. The metadata of a batch is kept while its rows stay the same."""

    def __init__(self, upload: Uploader) -> None:
        self.upload = upload
        self._draw_rows = choose_draw(upload.device)
        self._metadata = SamplingMetadata([], upload)
        self._memory = torch.empty(0, device=upload.device)

    def draw(self, logits: Tensor, chunks: list[Chunk]) -> list[SampledToken]:
        """One token for each sampled row of the chunks; `logits` `[rows, vocabulary]` float32
        may be changed in place.
        """
        sequences = [chunk.sequence for chunk in chunks for _ in range(chunk.sampled_rows)]
        if not sequences:
            return []
        if sequences != self._metadata.sequences:
            self._metadata = SamplingMetadata(sequences, self.upload)
        metadata = self._metadata
        reported = self._log_probabilities(logits, metadata)
        if metadata.masked:
            _mask(logits, chunks)
        if metadata.biased:
            self._add_biases(logits, metadata.biased, chunks)
        tokens, highest = self._sample(logits, metadata, chunks)
        # Not finite: not a number, or nothing that may come next.
        return [
            SampledToken(tokens[row], _report(reported, row, tokens[row]))
            if isfinite(best)
            else SampledToken(None)
            for row, best in enumerate(highest)
        ]

    def _sample(
        self, logits: Tensor, metadata: SamplingMetadata, chunks: list[Chunk]
    ) -> tuple[list[int], list[float]]:
        """A token of each row, and its highest logit."""
        if self._draw_rows is not None and metadata.kernel_inputs is not None:
            generated = [each.generated + len(ahead) for each, ahead in _sampled_rows(chunks)]
            positions = self.upload.integers(generated)
            return self._draw_rows(logits, *metadata.kernel_inputs, positions)
        tokens, highest = _highest(logits)
        if metadata.random:
            drawn = self._sample_random(logits, metadata, chunks)
            for row, token in zip(metadata.random, drawn, strict=True):
                tokens[row] = token
        return tokens, highest

    def _log_probabilities(self, logits: Tensor, metadata: SamplingMetadata) -> _Reported:
        """Log probabilities before anything is changed, for rows that report them."""
        rows = metadata.reporting
        if not rows:
            return {}
        table = logits.index_select(0, self.upload.integers(rows)).log_softmax(dim=-1)
        table.clamp_(min=LOGPROB_MIN)
        widths = [metadata.sequences[row].request.job.sampling.logprobs or 0 for row in rows]
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

    def _add_biases(self, logits: Tensor, rows: list[int], chunks: list[Chunk]) -> None:
        """Add the bias and subtract penalties for what was generated before each row."""
        biased = set(rows)
        places: list[NDArray[np.int64]] = []
        changes: list[NDArray[np.float32]] = []
        for row, (sequence, ahead) in enumerate(_sampled_rows(chunks)):
            if row in biased:
                for tokens, change in _changes(sequence, ahead):
                    places.append(tokens + row * logits.shape[1])
                    changes.append(change)
        where = torch.from_numpy(np.concatenate(places)).to(logits.device)
        what = torch.from_numpy(np.concatenate(changes)).to(logits.device)
        logits.view(-1).index_add_(0, where, what)

    def _sample_random(
        self, logits: Tensor, metadata: SamplingMetadata, chunks: list[Chunk]
    ) -> list[int]:
        """Tokens of the rows that are not greedy; `logits` serves as scratch memory then."""
        generated = [each.generated + len(ahead) for each, ahead in _sampled_rows(chunks)]
        positions = np.array(generated, np.uint64)[metadata.random]
        scaled = logits if metadata.index is None else logits.index_select(0, metadata.index)
        scaled /= metadata.temperatures
        probs = torch.softmax(scaled, dim=-1, out=self._scratch(*scaled.shape))
        tokens = [0] * len(metadata.random)
        for group in metadata.groups:
            if group.places is None:
                return group.draw(probs, positions, scaled)
            picked = probs.index_select(0, self.upload.integers(group.places))
            found = group.draw(picked, positions[group.places], scaled[: len(picked)])
            for place, token in zip(group.places, found, strict=True):
                tokens[place] = token
        return tokens

    def _scratch(self, rows: int, columns: int) -> Tensor:
        """Memory that is reused from step to step, since touching fresh pages costs more than the
        arithmetic that fills them.
        """
        if self._memory.numel() < rows * columns:
            self._memory = torch.empty(rows * columns, device=self.upload.device)
        return self._memory[: rows * columns].view(rows, columns)


_Reported = dict[int, tuple[Tensor, list[tuple[int, float]]]]


def _report(reported: _Reported, row: int, token: int) -> TokenLogprob | None:
    if row not in reported:
        return None
    table, top = reported[row]
    return TokenLogprob(token=token, logprob=float(table[token]), top=top)


def _sampled_rows(chunks: list[Chunk]) -> Iterator[tuple[Sequence, list[int]]]:
    """Each sampled row's sequence and the drafts that it assumes."""
    for chunk in chunks:
        for count in range(chunk.sampled_rows):
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
    params = sequence.request.job.sampling
    yield _keys(params.logit_bias), _values(params.logit_bias)
    if params.frequency_penalty or params.presence_penalty:
        counts = sequence.counts
        if ahead:
            counts = Counter(counts)
            counts.update(ahead)
        yield _keys(counts), -params.frequency_penalty * _values(counts) - params.presence_penalty


def _keys(table: Mapping[int, float]) -> NDArray[np.int64]:
    return np.fromiter(table, np.int64, len(table))


def _values(table: Mapping[int, float]) -> NDArray[np.float32]:
    return np.fromiter(table.values(), np.float32, len(table))


def _mask(logits: Tensor, chunks: list[Chunk]) -> None:
    """Minus infinity for what may not come next. A draft that may not come next cannot be sampled,
    so the rows behind it are of no use and stay as they are.
    """
    words = -(-logits.shape[1] // WORD_BITS)
    bits = bytearray(words * WORD_BITS // 8)
    first = 0
    for chunk in chunks:
        mask, accepted = chunk.sequence.mask, 0
        if mask is not None:
            for row in range(first, first + chunk.sampled_rows):
                mask.fill(bits)
                allowed = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
                banned = torch.from_numpy(allowed[: logits.shape[1]] == 0)
                logits[row].masked_fill_(banned.to(logits.device), -inf)
                if accepted == len(chunk.drafts) or not mask.accept(chunk.drafts[accepted]):
                    break
                accepted += 1
            mask.rollback(accepted)
        first += chunk.sampled_rows
