"""Decode steps as recordings: one replay of a CUDA graph instead of hundreds of launches.

A recording has its inputs in fixed memory and one row count, so a step is rounded up to one of a
few; the rows too many store to the spare slot. Only steps in which every sequence decodes one token
are replayed, all others are computed operator by operator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from inference.compact.batch.plan import decode_mask, first_block
from inference.compact.batch.tensors import AttentionPlan, Batch, DecodeGroup, round_up_rows
from inference.compact.layers.decoder import Decoder
from inference.compact.run.eager import EagerModel
from inference.compact.schedule.scheduler import Chunk

log = logging.getLogger("inference.compact")

# Bounds the recordings: the grid has 15 sizes up to here.
RECORDED_ROWS_MAX = 64
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
    wide = decoder.cache.blocks.dtype == torch.float32
    return not decoder.kernels.decode_masks and not (wide and decoder.shape.experts is not None)


def recorded_if_possible(
    eager: EagerModel, recorder: Callable[[], Recorder] = CudaRecorder
) -> RecordedModel | EagerModel:
    """With recordings, or as it was, with a warning, where the device cannot make them."""
    try:
        return RecordedModel(eager, recorder())
    except RuntimeError as error:
        log.warning("decode steps are not recorded, which is slower: %s", error)
        return eager


class RecordedModel:
    """A `LoadedModel` that replays decode steps of up to `rows_max` rows."""

    def __init__(
        self, eager: EagerModel, record: Recorder, rows_max: int = RECORDED_ROWS_MAX
    ) -> None:
        self.eager = eager
        sizes = sorted({round_up_rows(rows) for rows in range(1, rows_max + 1)}, reverse=True)
        # The largest first, so that smaller ones find their memory already there.
        self._recordings = {rows: Recording(eager, rows, record) for rows in sizes}

    def forward(self, chunks: list[Chunk]) -> Tensor:
        """Logits `[sampled rows, vocabulary]`, float32, in the order of the chunks."""
        if all(chunk.count == 1 and chunk.sampled_rows == 1 for chunk in chunks):
            recording = self._recordings.get(round_up_rows(len(chunks)))
            if recording is not None:
                return recording.forward(chunks)
        return self.eager.forward(chunks)


class Recording:
    """One row count: its fixed inputs and the recorded step."""

    def __init__(self, eager: EagerModel, rows: int, record: Recorder) -> None:
        self.decoder, self.upload, self.rows = eager.decoder, eager.upload, rows
        self.cache = self.decoder.cache
        shape, size = self.decoder.shape, self.cache.block_size
        self.windows = tuple(dict.fromkeys(shape.windows))
        # Tokens, positions, slots, then the lengths of each window: one upload a step.
        self._columns = self.upload.integers([[0] * rows] * (3 + len(self.windows)))
        spare = self.cache.spare_slot // size
        self._tables = []
        for window in self.windows:
            seen = shape.context_window if window is None else window + size
            self._tables.append(self.upload.integers([[spare] * -(-seen // size)] * rows))
        # What the rows of each table begin with.
        self._shown = [[[spare]] * rows for _ in self.windows]
        self._fill([])
        self._replay = record(self._step)

    def forward(self, chunks: list[Chunk]) -> Tensor:
        self._fill(chunks)
        return self._replay()[: len(chunks)]

    def _fill(self, chunks: list[Chunk]) -> None:
        size, extra = self.cache.block_size, self.rows - len(chunks)
        spare = self.cache.spare_slot
        slots = [
            chunk.sequence.blocks[chunk.start // size] * size + chunk.start % size
            for chunk in chunks
        ]
        columns = [
            [chunk.tokens[0] for chunk in chunks] + [0] * extra,
            [chunk.start for chunk in chunks] + [0] * extra,
            slots + [spare] * extra,
        ]
        for place, window in enumerate(self.windows):
            firsts = [(chunk, first_block(chunk.start, window, size)) for chunk in chunks]
            columns.append([c.start + 1 - first * size for c, first in firsts] + [1] * extra)
            tables = [c.sequence.blocks[first : c.start // size + 1] for c, first in firsts]
            self._show(place, tables + [[spare // size]] * extra)
        self._columns.copy_(self.upload.integers(columns))

    def _show(self, place: int, tables: list[list[int]]) -> None:
        """Upload the rows that differ from the step before: a sequence takes a block at times."""
        shown = self._shown[place]
        changed = [row for row, blocks in enumerate(tables) if blocks != shown[row]]
        if not changed:
            return
        self._shown[place] = tables
        width = max(len(tables[row]) for row in changed)
        padded = [tables[row] + tables[row][-1:] * (width - len(tables[row])) for row in changed]
        rows = self.upload.integers(changed)
        self._tables[place][:, :width].index_copy_(0, rows, self.upload.integers(padded))

    def _step(self) -> Tensor:
        tokens, positions, slots, *lengths = self._columns
        plans = {
            window: AttentionPlan(decodes=[self._group(window, *inputs)], prefills=[])
            for window, *inputs in zip(self.windows, self._tables, lengths, strict=True)
        }
        everything = torch.arange(self.rows, device=tokens.device)
        return self.decoder.forward(
            Batch(tokens=tokens, positions=positions, slots=slots, sampled=everything, plans=plans)
        )

    def _group(self, window: int | None, table: Tensor, lengths: Tensor) -> DecodeGroup:
        mask = None
        if self.decoder.kernels.decode_masks:
            keys = table.shape[1] * self.cache.block_size
            mask = decode_mask(lengths, keys, window, self.cache.blocks.dtype)
        return DecodeGroup(
            start=0, stop=self.rows, window=window, table=table, lengths=lengths, mask=mask
        )
