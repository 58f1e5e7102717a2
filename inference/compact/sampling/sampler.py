"""Samples the next token of a row: mask, bias, penalties, temperature, top-k, top-p, min-p, seed.
On a GPU the Triton kernel does so where that runs and agrees.

Order: the model's own log probabilities are taken first, as OpenAI's API reports them. The mask,
the bias and the penalties change logits; they decide greedy rows, too. Temperature comes next, then
top-k, top-p of what is left, then min-p relative to the best: the order of `transformers`
(`GenerationMixin._get_logits_processor`). A sample takes its random numbers by counter from the
stream of its choice, so it depends only on its request. The limit: the make-up of a batch may
change the last bits of the logits themselves, which can tip a sample that lies on an edge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import inf

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inference.compact.batch.tensors import Uploader
from inference.compact.candidates import Candidates, first_that_agrees
from inference.compact.sampling.drawn import Drawn, Found, Reported
from inference.compact.sampling.metadata import DrawGroup, SamplingMetadata
from inference.compact.sampling.operators import UNCUT, draw_nucleus, top_columns
from inference.compact.schedule.outputs import SampledToken
from inference.compact.schedule.request import WORD_BITS, Sequence, TokenMask
from inference.compact.schedule.scheduler import Chunk
from inference.contract.parts import TokenLogprob

# What an alternative without any probability is reported as: JSON has no infinity.
LOGPROB_MIN = -9999.0
# Of logits, settings, streams and positions: tokens and highest logits; see `sampling.kernel`.
DrawRows = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
KERNELS: Candidates = (("inference.compact.sampling.kernel", "draw_rows"),)
# The rows of a trial: temperature, top-p and min-p; the first is greedy.
SETTINGS = (
    (0.0, UNCUT, 0.0), (1.0, UNCUT, 0.0), (0.7, 0.8, 0.0), (1.3, 0.5, 0.05), (2.0, UNCUT, 0.1),
    (1.0, 0.1, 0.0),
)  # fmt: skip
# More than one of the kernel's tiles, the last not full.
COLUMNS = 9001


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
        return self.begin(logits, chunks).read()

    def begin(self, logits: Tensor, chunks: list[Chunk]) -> Drawn:
        """The same, without waiting for a GPU whose kernel draws and reports nothing else."""
        sequences = [chunk.sequence for chunk in chunks for _ in range(chunk.sampled_rows)]
        if not sequences:
            return Drawn(([], []), {}, logits.shape[1], self.upload)
        if sequences != self._metadata.sequences:
            self._metadata = SamplingMetadata(sequences, self.upload)
        metadata = self._metadata
        # Before anything waits for the logits, so that a GPU computes them meanwhile.
        masks = _fill_masks(chunks, logits.shape[1]) if metadata.masked else None
        reported = self._log_probabilities(logits, metadata)
        if masks is not None and masks[0]:
            self._mask(logits, *masks)
        if metadata.biased:
            self._add_biases(logits, metadata.biased, chunks)
        found = self._sample(logits, metadata, chunks)
        return Drawn(found, reported, logits.shape[1], self.upload)

    def score(self, logits: Tensor, chunks: list[Chunk]) -> Tensor:
        """Note how likely tokens of prompts were; returns the logits of the sampled rows alone."""
        sampled: list[int] = []
        first = 0
        for chunk in chunks:
            end = first + chunk.logit_rows
            sampled += range(end - chunk.sampled_rows, end)
            if chunk.scored_rows:
                self._score(logits[first:end], chunk)
            first = end
        return logits.index_select(0, self.upload.integers(sampled))

    def _score(self, logits: Tensor, chunk: Chunk) -> None:
        request = chunk.sequence.request
        tokens = request.job.tokens[len(request.job.tokens) - request.unscored :][: len(logits)]
        width = request.job.sampling.prompt_logprobs or 0
        table, values, columns = _ranked(logits[: len(tokens)], width)
        chosen = table.gather(1, self.upload.integers([[token] for token in tokens]))[:, 0].tolist()
        request.unscored -= len(tokens)
        request.scores = [
            TokenLogprob(token=token, logprob=own, top=list(zip(others, theirs, strict=True)))
            for token, own, others, theirs in zip(tokens, chosen, columns, values, strict=True)
        ]

    def _sample(self, logits: Tensor, metadata: SamplingMetadata, chunks: list[Chunk]) -> Found:
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

    def _log_probabilities(self, logits: Tensor, metadata: SamplingMetadata) -> Reported:
        """Log probabilities before anything is changed, for rows that report them."""
        rows = metadata.reporting
        if not rows:
            return {}
        widths = [metadata.sequences[row].request.job.sampling.logprobs or 0 for row in rows]
        picked = logits.index_select(0, self.upload.integers(rows))
        table, values, tokens = _ranked(picked, max(widths))
        return {
            row: (
                table[place],
                list(zip(tokens[place][:width], values[place][:width], strict=True)),
            )
            for place, (row, width) in enumerate(zip(rows, widths, strict=True))
        }

    def _mask(self, logits: Tensor, rows: list[int], bits: NDArray[np.uint8]) -> None:
        """Minus infinity for what may not come next."""
        if logits.device.type == "cpu":
            for row, own in zip(rows, bits, strict=True):
                allowed = np.unpackbits(own, count=logits.shape[1], bitorder="little")
                np.copyto(logits[row].numpy(), -inf, where=allowed.view(np.bool_) ^ True)
            return
        where = None if len(rows) == len(logits) else self.upload.integers(rows)
        ban(logits, where, self.upload.array(bits))

    def _add_biases(self, logits: Tensor, rows: list[int], chunks: list[Chunk]) -> None:
        """Divide by penalties, add the bias and subtract penalties for what was there before each
        row.
        """
        biased = set(rows)
        places: list[NDArray[np.int64]] = []
        changes: list[NDArray[np.float32]] = []
        for row, (sequence, ahead) in enumerate(_sampled_rows(chunks)):
            if row in biased:
                _discourage(logits[row], sequence, ahead)
                for tokens, change in _changes(sequence, ahead):
                    places.append(tokens + row * logits.shape[1])
                    changes.append(change)
        where = self.upload.array(np.concatenate(places))
        what = self.upload.array(np.concatenate(changes))
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


def _ranked(logits: Tensor, width: int) -> tuple[Tensor, list[list[float]], list[list[int]]]:
    """Log probabilities, and of each row the `width` largest with their columns."""
    table = logits.log_softmax(dim=-1).clamp_(min=LOGPROB_MIN)
    values, columns = top_columns(table, min(width, table.shape[1]))
    return table, values.tolist(), columns.tolist()


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
    if sequence.generated + len(ahead) < params.min_tokens:
        ends = dict.fromkeys(sequence.request.ends, -inf)
        yield _keys(ends), _values(ends)
    if params.frequency_penalty or params.presence_penalty:
        counts = sequence.counts
        if ahead:
            counts = Counter(counts)
            counts.update(ahead)
        yield _keys(counts), -params.frequency_penalty * _values(counts) - params.presence_penalty


def _discourage(logits: Tensor, sequence: Sequence, ahead: list[int]) -> None:
    """The penalty of Keskar et al. (2019) on every token of the prompt and the answer so far."""
    penalty = sequence.request.job.sampling.repetition_penalty
    if penalty != 1.0:
        seen = torch.tensor(list({*sequence.tokens, *ahead}), device=logits.device)
        values = logits[seen]
        logits[seen] = torch.where(values > 0.0, values / penalty, values * penalty)


def _keys(table: Mapping[int, float]) -> NDArray[np.int64]:
    return np.fromiter(table, np.int64, len(table))


def _values(table: Mapping[int, float]) -> NDArray[np.float32]:
    return np.fromiter(table.values(), np.float32, len(table))


def _fill_masks(chunks: list[Chunk], columns: int) -> tuple[list[int], NDArray[np.uint8]]:
    """The limited rows, and packed bits of what may come next in each. A draft that may not come
    next cannot be sampled, so the rows behind it are of no use and stay as they are, as do those of
    choices that have ended.
    """
    rows: list[int] = []
    # Without drafts, which move a mask on between its rows: all in one call.
    single: list[tuple[TokenMask, int]] = []
    words = -(-columns // WORD_BITS)
    limited = sum(chunk.sampled_rows for chunk in chunks if chunk.sequence.mask is not None)
    bits = np.empty((limited, words * WORD_BITS // 8), np.uint8)
    first = 0
    for chunk in chunks:
        mask, accepted = chunk.sequence.mask, 0
        if mask is not None and chunk.sequence.finish is None and chunk.sampled_rows == 1:
            single.append((mask, len(rows)))
            rows.append(first)
        elif mask is not None and chunk.sequence.finish is None:
            for row in range(first, first + chunk.sampled_rows):
                mask.fill(bits[len(rows)].data)
                rows.append(row)
                if accepted == len(chunk.drafts) or not mask.accept(chunk.drafts[accepted]):
                    break
                accepted += 1
            mask.rollback(accepted)
        first += chunk.sampled_rows
    if single:
        single[0][0].fill_all(single, bits)
    return rows, bits[: len(rows)]


def ban(logits: Tensor, where: Tensor | None, bits: Tensor) -> None:
    """Minus infinity in these rows, None being all, where packed bits `[rows, bytes]`, the lowest
    first, are not set.
    """
    places = torch.arange(8, dtype=torch.uint8, device=bits.device)
    allowed = bits[:, :, None].bitwise_right_shift(places).bitwise_and_(1)
    banned = allowed.view(len(bits), -1)[:, : logits.shape[1]] == 0
    if where is None:
        logits.masked_fill_(banned, -inf)
    else:
        logits.index_copy_(0, where, logits.index_select(0, where).masked_fill_(banned, -inf))


def choose_draw(device: str, candidates: Candidates = KERNELS) -> DrawRows | None:
    """None where torch's operators sample: on a CPU, and with a warning where no kernel can."""
    if device == "cpu":
        return None
    agrees = partial(agrees_with_operators, device=device)
    found: DrawRows | None = first_that_agrees(candidates, agrees, slow="tokens are drawn")
    return found


def agrees_with_operators(draw_rows: DrawRows, device: str) -> bool:
    """Whether a kernel samples what torch's operators sample from the same random numbers."""
    random = torch.Generator().manual_seed(1)
    logits = torch.randn(len(SETTINGS), COLUMNS, generator=random).mul_(3.0).to(device)
    asked = torch.tensor(SETTINGS, device=device)
    streams = np.arange(1, len(SETTINGS) + 1, dtype=np.uint64) << np.uint64(60)
    positions = np.arange(len(SETTINGS), dtype=np.uint64) * np.uint64(7)
    numbers = (torch.from_numpy(each.view(np.int64)).to(device) for each in (streams, positions))
    tokens, highest = draw_rows(logits, asked.T.contiguous(), *numbers).tolist()
    expected = logits.max(dim=-1)
    probs = (logits[1:] / asked[1:, :1]).softmax(dim=-1)
    cut = partial(draw_nucleus, top_p=asked[1:, 1:2], min_p=asked[1:, 2:])
    drawn = DrawGroup(None, streams[1:], cut).draw(probs, positions[1:], torch.empty_like(probs))
    return bool(
        tokens == [int(expected.indices[0]), *drawn] and highest == expected.values.tolist()
    )
