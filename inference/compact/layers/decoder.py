"""One decoder for all supported shapes: rows of a whole step in, logits of the sampled rows out."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import embedding, grouped_mm, linear, silu

from inference.compact.attention.cache import KvCache
from inference.compact.attention.copies import Copies
from inference.compact.attention.kernels import choose_kernels
from inference.compact.batch.tensors import Batch
from inference.compact.config.architectures import ExpertShape
from inference.compact.config.shape import ModelShape
from inference.compact.grouped import dense
from inference.compact.layers.ops import HeadSizes, choose_ops, rope_table
from inference.compact.layers.project import packed, project
from inference.compact.load.checkpoint import Affine
from inference.compact.load.placement import Placement
from inference.compact.load.weights import LayerWeights, Weights


class Decoder:
    """Holds weights and cache; `forward` writes keys and values of every row it computes."""

    def __init__(self, shape: ModelShape, weights: Weights, placement: Placement) -> None:
        self.shape = shape
        self.weights = packed(weights, shape, placement)
        self.head = Affine(self.weights.head)
        self.sizes = HeadSizes(shape.heads, shape.kv_heads, shape.head_dim, shape.norm_eps)
        self.kernels = choose_kernels(shape, placement)
        self.ops = choose_ops(shape, placement)
        self.cache = KvCache(shape, placement)
        self.copies = Copies(self.cache, placement) if placement.device == "cpu" else None
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
            added = project(attended, layer.out)
            normed = self._norm(x, added, layer.mlp_norm)
            added = feed_forward(normed, layer, self.shape.experts, self.ops.gate)
        return project(self._norm(x, added, self.weights.norm), self.head).float()

    def _attention(self, normed: Tensor, index: int, turn: Tensor, batch: Batch) -> Tensor:
        shape, layer = self.shape, self.weights.layers[index]
        queries = self.ops.place_heads(
            project(normed, layer.qkv),
            layer.head_norms,
            turn if shape.turned[index] else None,
            batch.slots,
            self.cache.kept[index],
            self.sizes,
        )
        return self.kernels.attend(queries, self.cache, index, batch.plans[shape.windows[index]])

    def _norm(self, x: Tensor, added: Tensor | None, weight: Tensor) -> Tensor:
        return self.ops.add_norm(x, added, weight, self.shape.norm_eps)


def feed_forward(
    x: Tensor, layer: LayerWeights, experts: ExpertShape | None, gate: Callable[[Tensor], Tensor]
) -> Tensor:
    """Outputs of the size of x, `[rows, hidden]`."""
    if layer.router is not None and experts is not None:
        gate_up, down = dense(layer.gate_up.weight), dense(layer.down.weight)
        return _mixture(x, layer.router, gate_up, down, experts)
    return project(gate(project(x, layer.gate_up)), layer.down)


def _mixture(
    x: Tensor, router: Tensor, gate_up: Tensor, down: Tensor, experts: ExpertShape
) -> Tensor:
    """Outputs of the size of x, `[rows, hidden]`: the weighted sum over each row's experts.

    Rows are sorted by expert, then one grouped product goes over all experts.

    `router` is `[experts, hidden]`, `gate_up` `[experts, 2 * width, hidden]`, `down`
    `[experts, hidden, width]`. A row depends on its own experts only, and its sum has one
    order, whatever else is in the batch.
    """
    likely = linear(x, router).softmax(dim=-1, dtype=torch.float32)
    weights, chosen = likely.topk(experts.per_token, dim=-1)
    if experts.normalized:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    owners, order = chosen.view(-1).sort(stable=True)
    numbers = torch.arange(experts.count, device=x.device)
    ends = torch.searchsorted(owners, numbers, right=True).to(torch.int32)
    rows = x.index_select(0, order // experts.per_token)
    gate, up = grouped_mm(rows, gate_up.transpose(1, 2), offs=ends).chunk(2, dim=-1)
    found = grouped_mm(silu(gate).mul_(up), down.transpose(1, 2), offs=ends)
    own = found.index_select(0, order.argsort()).view(len(x), experts.per_token, x.shape[1])
    return (own * weights[:, :, None].to(x.dtype)).sum(dim=1)
