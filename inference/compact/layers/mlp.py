"""The feed-forward part of a decoder layer: gated, dense or a mixture of experts."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import grouped_mm, linear, silu

from inference.compact.config.layers import ExpertShape
from inference.compact.load.weights import LayerWeights


def feed_forward(
    x: Tensor,
    layer: LayerWeights,
    experts: ExpertShape | None,
    gate: Callable[[Tensor], Tensor],
) -> Tensor:
    """Outputs of the size of x, `[rows, hidden]`."""
    if layer.router is not None and experts is not None:
        return _mixture(x, layer.router, layer.gate_up, layer.down, experts)
    fused = linear(x, layer.gate_up, layer.gate_up_bias)
    return linear(gate(fused), layer.down, layer.down_bias)


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
