"""A model whose steps are torch operators: works on any device, and is what others are held to."""

from dataclasses import dataclass

from torch import Tensor

from inference.compact.batch.plan import plan_decodes, plan_prefills, plan_spans, rows_of
from inference.compact.batch.tensors import AttentionPlan, Batch, Uploader, round_up_rows
from inference.compact.layers.decoder import Decoder
from inference.compact.schedule.scheduler import Chunk


@dataclass(frozen=True, eq=False)
class EagerModel:
    """Lays chunks out as tensors for the decoder."""

    decoder: Decoder
    upload: Uploader

    def forward(self, chunks: list[Chunk], drawn: Tensor | None = None) -> Tensor:
        """Logits `[rows that need them, vocabulary]`, float32, in the order of the chunks."""
        rows = sum(chunk.logit_rows for chunk in chunks)
        return self.decoder.forward(self._batch(chunks, drawn))[:rows]

    def _batch(self, chunks: list[Chunk], drawn: Tensor | None) -> Batch:
        cache = self.decoder.cache
        # The longest first, so that those that join move no others to another group.
        decodes = sorted((c for c in chunks if c.count == 1), key=lambda chunk: -chunk.start)
        prefills = [chunk for chunk in chunks if chunk.count > 1]
        rows = rows_of(decodes + prefills, chunks, cache.block_size)
        spare_rows = round_up_rows(len(rows.tokens)) - len(rows.tokens)
        spare_draws = round_up_rows(len(rows.sampled)) - len(rows.sampled)
        slots = self.upload.integers(rows.slots + [cache.spare_slot] * spare_rows)
        tokens = self.upload.integers(rows.tokens + [0] * spare_rows)
        rows.take_late(tokens, drawn, self.upload)
        return Batch(
            tokens=tokens,
            positions=self.upload.integers(rows.positions + [0] * spare_rows),
            slots=slots,
            sampled=self.upload.integers(rows.sampled + rows.sampled[:1] * spare_draws),
            plans={
                window: self._plan(decodes, prefills, window, slots)
                for window in set(self.decoder.shape.windows)
            },
        )

    def _plan(
        self, decodes: list[Chunk], prefills: list[Chunk], window: int | None, slots: Tensor
    ) -> AttentionPlan:
        cache, kernels = self.decoder.cache, self.decoder.kernels
        decode_masks = cache.dtype if kernels.decode_masks else None
        prefill_masks = cache.dtype if kernels.prefill_masks else None
        size, first = cache.block_size, len(decodes)
        groups = plan_decodes(decodes, size, self.upload, decode_masks, window)
        if self.decoder.copies is not None and window is None:
            groups = self.decoder.copies.attach(groups, decodes, slots)
        if kernels.together is not None and len(prefills) > 1:
            spans = plan_spans(prefills, first, size, self.upload, window)
            return AttentionPlan(decodes=groups, prefills=[], spans=spans)
        return AttentionPlan(
            decodes=groups,
            prefills=plan_prefills(prefills, first, size, self.upload, prefill_masks, window),
        )
