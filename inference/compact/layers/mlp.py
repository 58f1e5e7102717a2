"""The feed-forward part of a decoder layer: gated, dense or a mixture of experts."""

from collections.abc import Callable

from torch import Tensor
from torch.nn.functional import linear

from inference.compact.config.layers import ExpertShape
from inference.compact.layers.experts import mixture
from inference.compact.load.weights import LayerWeights


def feed_forward(
    x: Tensor,
    layer: LayerWeights,
    experts: ExpertShape | None,
    gate: Callable[[Tensor], Tensor],
) -> Tensor:
    """Outputs of the size of x, `[rows, hidden]`."""
    if layer.router is not None and experts is not None:
        return mixture(x, layer.router, layer.gate_up, layer.down, experts)
    fused = linear(x, layer.gate_up, layer.gate_up_bias)
    return linear(gate(fused), layer.down, layer.down_bias)
