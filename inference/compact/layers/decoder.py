"""One decoder for all supported shapes: rows of a whole step in, logits of the sampled rows out."""

from torch import Tensor
from torch.nn.functional import embedding, linear

from inference.compact.attention.cache import KvCache
from inference.compact.attention.kernels import choose_kernels
from inference.compact.batch.tensors import Batch
from inference.compact.config.shape import ModelShape
from inference.compact.layers.mlp import feed_forward
from inference.compact.layers.ops import HeadSizes
from inference.compact.layers.ops_choice import choose_ops
from inference.compact.layers.rope import rope_table
from inference.compact.load.placement import Placement
from inference.compact.load.weights import Weights


class Decoder:
    """Holds weights and cache; `forward` writes keys and values of every row it computes."""

    def __init__(self, shape: ModelShape, weights: Weights, placement: Placement) -> None:
        self.shape = shape
        self.weights = weights
        self.sizes = HeadSizes(shape.heads, shape.kv_heads, shape.head_dim, shape.norm_eps)
        self.kernels = choose_kernels(shape, placement)
        self.ops = choose_ops(shape, placement)
        self.cache = KvCache(shape, placement)
        self.rope = rope_table(shape).to(placement.device, placement.torch_dtype)

    def forward(self, batch: Batch) -> Tensor:
        """Logits `[sampled rows, vocabulary]`, float32."""
        x = embedding(batch.tokens, self.weights.embedding)
        turn = self.rope.index_select(0, batch.positions)
        last = len(self.weights.layers) - 1
        # What a layer adds to x is added with the norm that comes next.
        added: Tensor | None = None
        for index, layer in enumerate(self.weights.layers):
            attended = self._attention(self._norm(x, added, layer.input_norm), index, turn, batch)
            if index == last:
                # After the last attention only the sampled rows matter.
                x = x.index_select(0, batch.sampled)
                attended = attended.index_select(0, batch.sampled)
            added = linear(attended, layer.out, layer.out_bias)
            normed = self._norm(x, added, layer.mlp_norm)
            added = feed_forward(normed, layer, self.shape.experts, self.ops.gate)
        return linear(self._norm(x, added, self.weights.norm), self.weights.head).float()

    def _attention(self, normed: Tensor, index: int, turn: Tensor, batch: Batch) -> Tensor:
        shape, layer = self.shape, self.weights.layers[index]
        norms = None
        if layer.q_norm is not None and layer.k_norm is not None:
            norms = (layer.q_norm, layer.k_norm)
        queries = self.ops.place_heads(
            linear(normed, layer.qkv, layer.qkv_bias),
            norms,
            turn if shape.turned[index] else None,
            batch.slots,
            self.cache.slots[index],
            self.sizes,
        )
        return self.kernels.attend(queries, self.cache, index, batch.plans[shape.windows[index]])

    def _norm(self, x: Tensor, added: Tensor | None, weight: Tensor) -> Tensor:
        return self.ops.add_norm(x, added, weight, self.shape.norm_eps)
