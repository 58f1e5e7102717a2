"""A model whose steps run in C: packs its weights once, then hands over each step's rows."""

from __future__ import annotations

import ctypes
from array import array

import torch
from torch import Tensor

from inference.compact.config.shape import ModelShape
from inference.compact.layers.ops import rope_table
from inference.compact.load.placement import Placement, layer_token_bytes
from inference.compact.load.weights import LayerWeights, Weights
from inference.compact.native.choice import chosen
from inference.compact.native.library import Layer, Model, Step
from inference.compact.native.packing import BLOCK, Packer, map_huge
from inference.compact.native.width import Width
from inference.compact.schedule.scheduler import Chunk
from inference.errors import ModelError

# How long a helper looks for work before it sleeps: about the pause between two small steps.
SPIN_NS = 200_000


def load_native(shape: ModelShape, weights: Weights, placement: Placement) -> NativeDecoder:
    """Pack weights in bf16, taking the layers off their list. Raises `NativeUnavailable` where the
    probe would have, and `ModelError` where threads or memory for them are short.
    """
    return NativeDecoder(chosen()[1], shape, weights, placement)


class NativeDecoder:
    """Holds packed weights, the cache and the C engine; `forward` is the whole step."""

    def __init__(
        self, library: ctypes.CDLL, shape: ModelShape, weights: Weights, placement: Placement
    ) -> None:
        self.shape = shape
        self._library = library
        self._engine = None
        self.packer = Packer()
        threads = placement.threads or torch.get_num_threads()
        self.width = Width(threads)
        token_bytes = layer_token_bytes(shape, placement.dtype, placement.kv_dtype)
        self._cache = map_huge(placement.kv_blocks * shape.layers * BLOCK * token_bytes)
        self._blocks = placement.kv_blocks
        # Taken now: a step that is the first to write to a huge page waits up to 2 ms for it.
        self.cache.zero_()
        self._model = self._pack(weights, placement)
        self._engine = library.sluice_open(self._model, threads, SPIN_NS)
        if not self._engine:
            raise ModelError("kernels: no room for the threads of the native code")
        self._logits = torch.empty(0, shape.vocab_size)
        self._step = Step()

    @property
    def cache(self) -> Tensor:
        """Packed keys and values, `[layers, blocks, kv_heads, bytes / 2]`, bits as int16."""
        everything = torch.frombuffer(self._cache, dtype=torch.int16)
        return everything.view(self.shape.layers, self._blocks, self.shape.kv_heads, -1)

    def close(self) -> None:
        """Stop the threads. No `forward` may follow."""
        engine, self._engine = self._engine, None
        if engine is not None:
            self._library.sluice_close(engine)

    def __del__(self) -> None:
        self.close()

    def forward(self, chunks: list[Chunk], drawn: Tensor | None = None) -> Tensor:
        """Logits `[rows that need them, vocabulary]`, float32, in the order of the chunks; the next
        call overwrites them. Raises `MemoryError` if there is none for a step of so many rows.
        """
        tokens, tables, sampled, records = array("i"), array("i"), array("i"), array("i")
        for chunk in chunks:
            records.extend((len(tokens), chunk.count, chunk.start, len(tables)))
            if drawn is None or chunk.source is None:
                tokens.extend(chunk.tokens)
            else:
                tokens.append(int(drawn[chunk.source]))
            tables.extend(chunk.sequence.blocks)
            sampled.extend(range(len(tokens) - chunk.logit_rows, len(tokens)))
        if len(sampled) > len(self._logits):
            self._logits = torch.empty(2 * len(sampled), self.shape.vocab_size)
        step = self._step
        step.tokens = tokens.buffer_info()[0]
        step.tables = tables.buffer_info()[0]
        step.sampled = sampled.buffer_info()[0]
        step.chunks = records.buffer_info()[0]
        step.logits = self._logits.data_ptr()
        step.rows, step.chunk_count, step.sampled_count = len(tokens), len(chunks), len(sampled)
        step.threads = self.width.threads()
        if self._library.sluice_step(self._engine, step):
            raise MemoryError(f"the native engine found no room for {len(tokens)} rows")
        self.width.note(step.lost_ns, step.step_ns)
        return self._logits[: len(sampled)]

    def _pack(self, weights: Weights, placement: Placement) -> Model:
        shape, packer = self.shape, self.packer
        rope = packer.floats(rope_table(shape))
        layers = (Layer * shape.layers)()
        for index in range(shape.layers):
            # Taken off the list, so that the model never lies in memory twice.
            layers[index] = self._pack_layer(weights.layers.pop(0), index, rope)
        return Model(
            embedding=packer.keep(weights.embedding.contiguous()),
            norm=packer.floats(weights.norm),
            layers=layers,
            cache=self.cache.data_ptr(),
            head=packer.linear(weights.head),
            blocks=placement.kv_blocks,
            hidden=shape.hidden_size,
            inner=shape.intermediate_size,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            depth=shape.layers,
            coded_cache=placement.kv_dtype == "int8",
            norm_eps=shape.norm_eps,
        )

    def _pack_layer(self, layer: LayerWeights, index: int, rope: int | None) -> Layer:
        packer = self.packer
        query_norm, key_norm = layer.head_norms or (None, None)
        return Layer(
            input_norm=packer.floats(layer.input_norm),
            mlp_norm=packer.floats(layer.mlp_norm),
            q_norm=packer.floats(query_norm),
            k_norm=packer.floats(key_norm),
            rope=rope if self.shape.turned[index] else None,
            qkv=packer.linear(*layer.qkv),
            out=packer.linear(*layer.out),
            gate_up=packer.gated(*layer.gate_up),
            down=packer.linear(*layer.down),
            window=self.shape.windows[index] or 0,
        )
