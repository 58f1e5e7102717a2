"""The feed-forward part of a decoder layer: gated, dense or a mixture of experts."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import linear, silu

from inference.compact.layers.experts import mixture
from inference.compact.models.layers import ExpertShape
from inference.compact.weights import LayerWeights


def feed_forward(x: Tensor, layer: LayerWeights, experts: ExpertShape | None) -> Tensor:
    """Outputs of the size of x, `[rows, hidden]`."""
    if layer.router is not None and experts is not None:
        return mixture(x, layer.router, layer.gate_up, layer.down, experts)
    gate, up = linear(x, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
    return linear(silu(gate).mul_(up), layer.down, layer.down_bias)
