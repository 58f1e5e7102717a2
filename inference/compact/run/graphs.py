"""Steps as recordings: one replay of a CUDA graph instead of hundreds of launches.

A recording has its inputs in fixed memory and one row count, so a step is rounded up to one of a
few; the rows too many store to the spare slot. Steps in which every sequence decodes one token have
recordings of their own; others, with prompts or drafts, have some up to a size above which a device
computes for longer than launches take. All others are computed operator by operator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from inference.compact.batch.plan import decode_mask, first_block, rows_of
from inference.compact.batch.tensors import (
    AttentionPlan,
    Batch,
    DecodeGroup,
    SpanBatch,
    Uploader,
    round_up_rows,
)
from inference.compact.layers.decoder import Decoder
from inference.compact.run.eager import EagerModel
from inference.compact.run.made_up import made_up_chunk
from inference.compact.schedule.scheduler import Chunk

log = logging.getLogger("inference.compact")

# Bounds the recordings: the grid has 21 sizes up to here.
RECORDED_ROWS_MAX = 256
# Of steps with spans of several rows; so many spans.
MIXED_ROWS = (64, 128, 256, 384, 512, 768, 1024)
MIXED_DECODES = (32, RECORDED_ROWS_MAX)
SPANS_MAX = 64
# Of a trial: each prompt's length and how many of its tokens are computed.
TRIAL_PARTS = ((40, 1), (3, 1), (45, 45), (37, 2), (33, 20))
# By so much of their norm, logits may differ between kernels.
APART_MAX = 0.05
# Runs before a recording, in which libraries and Triton prepare themselves.
REHEARSALS = 2

Step = Callable[[], Tensor]
Recorder = Callable[[Step], Step]


class CudaRecorder:
    """Captures steps. No two of them ever run at once, so all share the memory of the largest."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, step: Step) -> Step:
        """Capture a step; the result replays it and returns the same memory each time."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(REHEARSALS):
                step()
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            result = step()

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay


def can_record(decoder: Decoder) -> bool:
    """Masks, which CPUs need too, would span the whole context; torch's grouped product of float32
    asks the host for its sizes.
    """
    wide = decoder.cache.dtype == torch.float32
    return not decoder.kernels.decode_masks and not (wide and decoder.shape.experts is not None)


def recorded_if_possible(
    eager: EagerModel, recorder: Callable[[], Recorder] = CudaRecorder
) -> RecordedModel | EagerModel:
    """With recordings, or as it was, with a warning, where the device cannot make them, or they say
    something else.
    """
    try:
        recorded = RecordedModel(eager, recorder())
        if recorded.agrees():
            return recorded
        reason: object = "replayed ones compute something else"
    except RuntimeError as error:
        reason = error
    log.warning("steps are not recorded, which is slower: %s", reason)
    return eager


class RecordedModel:
    """A `LoadedModel` that replays steps: of up to `rows_max` decoding rows, and mixed ones of up
    to so many rows as `mixed` has sizes for, where a kernel takes all their spans at once.
    """

    def __init__(
        self,
        eager: EagerModel,
        record: Recorder,
        rows_max: int = RECORDED_ROWS_MAX,
        mixed: Sequence[int] = MIXED_ROWS,
    ) -> None:
        self.eager = eager
        sizes = {round_up_rows(rows) for rows in range(1, rows_max + 1)}
        layouts = {Layout(rows, rows, 0, rows) for rows in sizes}
        if eager.decoder.kernels.together is not None:
            layouts |= {_mixed(rows, decodes) for rows in mixed for decodes in MIXED_DECODES}
        inputs = FixedInputs(eager, Layout(*map(max, zip(*layouts, NOTHING, strict=True))))
        # The largest first, so that smaller ones find their memory already there.
        ordered = sorted(layouts, reverse=True)
        self._recordings = [Recording(inputs, layout, record) for layout in ordered][::-1]

    def forward(self, chunks: list[Chunk], drawn: Tensor | None = None) -> Tensor:
        """Logits `[rows that need them, vocabulary]`, float32, in the order of the chunks."""
        spans = sum(chunk.count > 1 for chunk in chunks)
        wanted = Layout(
            sum(chunk.count for chunk in chunks),
            len(chunks) - spans,
            spans,
            sum(chunk.logit_rows for chunk in chunks),
        )
        for recording in self._recordings:
            if recording.layout.holds(wanted):
                return recording.forward(chunks, drawn)
        return self.eager.forward(chunks, drawn)

    def agrees(self) -> bool:
        """Whether a decode step and a mixed one say what they say operator by operator; their keys
        and values go to the first blocks.
        """
        decoder = self.eager.decoder
        size, vocabulary = decoder.cache.block_size, decoder.shape.vocab_size
        longest = max(length for length, _ in TRIAL_PARTS)
        width = -(-longest // size)
        if longest > decoder.shape.context_window or (
            len(TRIAL_PARTS) * width * size > decoder.cache.spare_slot
        ):
            return True
        chunks = []
        for number, (length, count) in enumerate(TRIAL_PARTS):
            tokens = [(number + 7 * place) % vocabulary for place in range(length)]
            blocks = list(range(number * width, (number + 1) * width))
            chunks.append(made_up_chunk(tokens, count, blocks, size))
        return all(
            _alike(self.forward(step).clone(), self.eager.forward(step))
            for step in (chunks[:2], chunks)
        )


def _alike(found: Tensor, right: Tensor) -> bool:
    return bool((found - right).norm() <= APART_MAX * right.norm())


class Layout(NamedTuple):
    """How much a recording has room for: rows, those that decode, spans of more rows, logits."""

    rows: int
    decodes: int
    spans: int
    sampled: int

    def holds(self, wanted: Layout) -> bool:
        """Whether a step fits; without spans each row must have its logits."""
        fits = all(mine >= theirs for mine, theirs in zip(self, wanted, strict=True))
        return fits and (self.spans > 0 or wanted.sampled == wanted.rows)


NOTHING = Layout(0, 0, 0, 0)


def _mixed(rows: int, decodes: int) -> Layout:
    decodes, spans = min(rows, decodes), min(rows, SPANS_MAX)
    return Layout(rows, decodes, spans, min(rows, decodes + spans))


class FixedTable:
    """Block tables in fixed memory. Of a step only rows are uploaded that differ from the one
    before: a sequence takes a block at times.
    """

    def __init__(self, rows: int, width: int, spare: int, upload: Uploader) -> None:
        self.upload = upload
        self.blocks = torch.full((rows, width), spare, device=upload.device)
        # Of each row the list, which only grows, and the part of it.
        self._shown: list[tuple[list[int], int, int]] = [([], 0, 0)] * rows

    def show(self, parts: list[tuple[list[int], int, int]]) -> None:
        """Rows from the first on: blocks of a list from one place to another."""
        changed = [
            row
            for row, (part, shown) in enumerate(zip(parts, self._shown, strict=False))
            if part[0] is not shown[0] or part[1:] != shown[1:]
        ]
        if not changed:
            return
        self._shown[: len(parts)] = parts
        tables = [parts[row][0][slice(*parts[row][1:])] for row in changed]
        width = max(map(len, tables))
        padded = [table + table[-1:] * (width - len(table)) for table in tables]
        rows = self.upload.integers(changed)
        self.blocks[:, :width].index_copy_(0, rows, self.upload.integers(padded))


class FixedView:
    """Of one window: what decoding rows and spans see."""

    def __init__(self, window: int | None, inputs: FixedInputs, most: Layout) -> None:
        shape, size, spare = inputs.decoder.shape, inputs.block_size, inputs.spare_block
        self.window, self.block_size, self.upload = window, size, inputs.upload
        # A span may have as many rows as it likes beside those that its first one sees.
        width = -(-shape.context_window // size)
        narrow = width if window is None else min(width, -(-(window + size) // size))
        self.lengths = self.upload.integers([1] * most.decodes)
        self.table = FixedTable(most.decodes, narrow, spare, self.upload)
        self.starts = self.upload.integers([0] * (most.spans + 1))
        self.span_lengths = self.upload.integers([0] * most.spans)
        self.span_table = FixedTable(most.spans, width, spare, self.upload)
        self._spare_part = ([spare], 0, 1)

    def fill(self, decodes: list[Chunk], spans: list[Chunk], layout: Layout) -> None:
        """Rows that are too many see the spare block; where there are spans, nothing."""
        extra = layout.decodes - len(decodes)
        parts = [self._part(chunk) for chunk in decodes]
        lengths = self._lengths(decodes, parts) + [0 if layout.spans else 1] * extra
        self.lengths[: layout.decodes].copy_(self.upload.integers(lengths))
        self.table.show(parts + ([] if layout.spans else [self._spare_part] * extra))
        if layout.spans:
            extra = layout.spans - len(spans)
            parts = [self._part(chunk) for chunk in spans]
            starts = list(accumulate((chunk.count for chunk in spans), initial=len(decodes)))
            starts += starts[-1:] * extra
            self.starts[: layout.spans + 1].copy_(self.upload.integers(starts))
            lengths = self._lengths(spans, parts) + [0] * extra
            self.span_lengths[: layout.spans].copy_(self.upload.integers(lengths))
            self.span_table.show(parts)

    def plan(self, layout: Layout, mask_dtype: torch.dtype | None) -> AttentionPlan:
        """The first rows of all of this."""
        table, lengths = self.table.blocks[: layout.decodes], self.lengths[: layout.decodes]
        mask = None
        if mask_dtype is not None:
            mask = decode_mask(lengths, table.shape[1] * self.block_size, self.window, mask_dtype)
        group = DecodeGroup(
            start=0,
            stop=layout.decodes,
            window=self.window,
            table=table,
            lengths=lengths,
            mask=mask,
        )
        spans = None
        if layout.spans:
            spans = SpanBatch(
                window=self.window,
                starts=self.starts[: layout.spans + 1],
                lengths=self.span_lengths[: layout.spans],
                table=self.span_table.blocks[: layout.spans],
            )
        return AttentionPlan(decodes=[group], prefills=[], spans=spans)

    def _part(self, chunk: Chunk) -> tuple[list[int], int, int]:
        size = self.block_size
        first = first_block(chunk.start, self.window, size)
        return chunk.sequence.blocks, first, -(-(chunk.start + chunk.count) // size)

    def _lengths(self, chunks: list[Chunk], parts: list[tuple[list[int], int, int]]) -> list[int]:
        size = self.block_size
        return [
            chunk.start + chunk.count - first * size
            for chunk, (_, first, _) in zip(chunks, parts, strict=True)
        ]


class FixedInputs:
    """What a step reads, in memory that recordings share; each takes the first rows of it."""

    def __init__(self, eager: EagerModel, most: Layout) -> None:
        self.decoder, self.upload = eager.decoder, eager.upload
        cache = self.decoder.cache
        self.block_size = cache.block_size
        self.spare_slot = cache.spare_slot
        self.spare_block = cache.spare_slot // cache.block_size
        # Tokens, positions, slots.
        self.columns = self.upload.integers([[0] * most.rows] * 3)
        self.sampled = self.upload.integers([0] * most.sampled)
        windows = dict.fromkeys(self.decoder.shape.windows)
        self.views = {window: FixedView(window, self, most) for window in windows}

    def fill(self, chunks: list[Chunk], layout: Layout, drawn: Tensor | None = None) -> None:
        """Rows that are too many store to the spare slot."""
        decodes = [chunk for chunk in chunks if chunk.count == 1]
        spans = [chunk for chunk in chunks if chunk.count > 1]
        rows = rows_of(decodes + spans, chunks, self.block_size)
        extra = [0] * (layout.rows - len(rows.tokens))
        spare = [self.spare_slot] * len(extra)
        columns = [rows.tokens + extra, rows.positions + extra, rows.slots + spare]
        self.columns[:, : layout.rows].copy_(self.upload.integers(columns))
        rows.take_late(self.columns[0], drawn, self.upload)
        if layout.spans:
            sampled = rows.sampled + [0] * (layout.sampled - len(rows.sampled))
            self.sampled[: layout.sampled].copy_(self.upload.integers(sampled))
        for view in self.views.values():
            view.fill(decodes, spans, layout)

    def step(self, layout: Layout) -> Tensor:
        """Logits of a step of this layout."""
        tokens, positions, slots = self.columns[:, : layout.rows]
        sampled = torch.arange(layout.rows, device=tokens.device)
        if layout.spans:
            sampled = self.sampled[: layout.sampled]
        masks = self.decoder.cache.dtype if self.decoder.kernels.decode_masks else None
        plans = {window: view.plan(layout, masks) for window, view in self.views.items()}
        return self.decoder.forward(
            Batch(tokens=tokens, positions=positions, slots=slots, sampled=sampled, plans=plans)
        )


class Recording:
    """One layout and its recorded step."""

    def __init__(self, inputs: FixedInputs, layout: Layout, record: Recorder) -> None:
        self.inputs, self.layout = inputs, layout
        inputs.fill([], layout)
        self._replay = record(partial(inputs.step, layout))

    def forward(self, chunks: list[Chunk], drawn: Tensor | None) -> Tensor:
        """As `RecordedModel.forward`, of a step that fits."""
        self.inputs.fill(chunks, self.layout, drawn)
        return self._replay()[: sum(chunk.logit_rows for chunk in chunks)]
