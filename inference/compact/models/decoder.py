"""One decoder for all supported shapes: rows of a whole step in, logits of the sampled rows out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, rms_norm

from inference.compact.attention.cache import KvCache
from inference.compact.attention.kernels import choose_kernels
from inference.compact.batch import Batch
from inference.compact.layers.mlp import feed_forward
from inference.compact.layers.rope import rope_table, rotate
from inference.compact.models.shape import ModelShape
from inference.compact.placement import Placement
from inference.compact.weights import Weights


def alone(x: Tensor) -> Tensor:
    """The sum over all processes, where there is one."""
    return x


class Decoder:
    """Holds weights and cache; `forward` writes keys and values of every row it computes.

    Shape and weights may be a share of the model; then `summed` adds up what its layers make.
    """

    def __init__(
        self,
        shape: ModelShape,
        weights: Weights,
        placement: Placement,
        summed: Callable[[Tensor], Tensor] = alone,
    ) -> None:
        self.shape = shape
        self.summed = summed
        self.weights = weights
        self.kernels = choose_kernels(shape, placement)
        self.cache = KvCache(shape, placement)
        self.rope = rope_table(shape).to(placement.device, placement.torch_dtype)

    def forward(self, batch: Batch) -> Tensor:
        """Logits `[sampled rows, vocabulary]`, float32."""
        x = embedding(batch.tokens, self.weights.embedding)
        turn = self.rope.index_select(0, batch.positions)[:, :, None]
        last = len(self.weights.layers) - 1
        for index, layer in enumerate(self.weights.layers):
            attended = self._attention(x, index, turn, batch)
            if index == last:
                # Beyond the last attention only the rows that are drawn from matter.
                x = x.index_select(0, batch.sampled)
                attended = attended.index_select(0, batch.sampled)
            x += self.summed(linear(attended, layer.out, layer.out_bias))
            normed = self._norm(x, layer.mlp_norm)
            x += self.summed(feed_forward(normed, layer, self.shape.experts))
        return linear(self._norm(x, self.weights.norm), self.weights.head).float()

    def _attention(self, x: Tensor, index: int, turn: Tensor, batch: Batch) -> Tensor:
        shape, layer = self.shape, self.weights.layers[index]
        fused = linear(self._norm(x, layer.input_norm), layer.qkv, layer.qkv_bias)
        heads = fused.view(len(x), -1, shape.head_dim)
        turning = shape.heads + shape.kv_heads
        queries_keys, values = heads[:, :turning], heads[:, turning:]
        if layer.q_norm is not None and layer.k_norm is not None:
            queries = self._norm(queries_keys[:, : shape.heads], layer.q_norm)
            keys = self._norm(queries_keys[:, shape.heads :], layer.k_norm)
            queries_keys = torch.cat((queries, keys), dim=1)
        if shape.turned[index]:
            queries_keys = rotate(queries_keys, turn[:, 0], turn[:, 1])
        keys_values = torch.stack((queries_keys[:, shape.heads :], values), dim=1)
        self.cache.store(index, batch.slots, keys_values)
        queries = queries_keys[:, : shape.heads]
        return self.kernels.attend(queries, self.cache, index, batch.plans[shape.windows[index]])

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight.shape, weight, self.shape.norm_eps)
