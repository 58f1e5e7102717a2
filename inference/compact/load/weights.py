"""Weights of a Hugging Face checkpoint folder, as the decoder wants them: fused and split.

Every complaint is a `ModelError` that names the file or the tensor.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from inference.compact.config.layers import ExpertShape
from inference.compact.config.shape import ModelShape
from inference.compact.load.checkpoint import Checkpoint
from inference.compact.load.placement import Placement


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerWeights:
    """One decoder layer; projections that read the same input are fused.

    In a layer with experts `router` is `[experts, hidden]`, and `gate_up` and `down` are stacked
    over the experts.
    """

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None
    router: Tensor | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """A whole model. `head` is the embedding itself where the two are tied."""

    embedding: Tensor
    layers: list[LayerWeights]
    norm: Tensor
    head: Tensor


def load_weights(folder: Path, shape: ModelShape, placement: Placement) -> Weights:
    """Read all tensors the shape asks for, in the placement's dtype and on its device."""
    checkpoint = Checkpoint(folder, placement.torch_dtype, placement.device)
    loader = _Loader(checkpoint, shape)
    take = checkpoint.take
    embedding = take("model.embed_tokens.weight", shape.vocab_size, shape.hidden_size)
    head = embedding
    if not shape.tied_embeddings:
        head = take("lm_head.weight", shape.vocab_size, shape.hidden_size)
    weights = Weights(
        embedding=embedding,
        layers=[loader.layer(index) for index in range(shape.layers)],
        norm=take("model.norm.weight", shape.hidden_size),
        head=head,
    )
    checkpoint.refuse_leftovers("lm_head.weight" if shape.tied_embeddings else None)
    return weights


class _Loader:
    def __init__(self, checkpoint: Checkpoint, shape: ModelShape) -> None:
        self.checkpoint = checkpoint
        self.take = checkpoint.take
        self.shape = shape

    def layer(self, index: int) -> LayerWeights:
        shape, hidden = self.shape, self.shape.hidden_size
        prefix = f"model.layers.{index}."
        attention = prefix + "self_attn."
        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        qkv = [f"{attention}{name}" for name in ("q_proj", "k_proj", "v_proj")]
        rows = (queries, keys, keys)
        experts = shape.experts
        if experts is not None and index in experts.layers:
            router, gate_up, down = self._experts(prefix, experts)
            gate_up_bias, down_bias = None, None
        else:
            mlp, inner = prefix + "mlp.", shape.intermediate_size
            names = [f"{mlp}gate_proj", f"{mlp}up_proj"]
            router = None
            gate_up = self._fused(names, (inner, inner))
            gate_up_bias = self._fused_bias(names, (inner, inner)) if shape.mlp_bias else None
            down = self.take(f"{mlp}down_proj.weight", hidden, inner)
            down_bias = self.take(f"{mlp}down_proj.bias", hidden) if shape.mlp_bias else None
        norms = {
            name: self.take(f"{attention}{name}.weight", shape.head_dim) if shape.qk_norm else None
            for name in ("q_norm", "k_norm")
        }
        return LayerWeights(
            input_norm=self.take(f"{prefix}input_layernorm.weight", hidden),
            qkv=self._fused(qkv, rows),
            qkv_bias=self._fused_bias(qkv, rows) if shape.qkv_bias else None,
            q_norm=norms["q_norm"],
            k_norm=norms["k_norm"],
            out=self.take(f"{attention}o_proj.weight", hidden, queries),
            out_bias=self.take(f"{attention}o_proj.bias", hidden) if shape.out_bias else None,
            mlp_norm=self.take(f"{prefix}post_attention_layernorm.weight", hidden),
            gate_up=gate_up,
            gate_up_bias=gate_up_bias,
            down=down,
            down_bias=down_bias,
            router=router,
        )

    def _fused(self, names: list[str], rows: tuple[int, ...]) -> Tensor:
        hidden = self.shape.hidden_size
        parts = zip(names, rows, strict=True)
        return torch.cat([self.take(f"{name}.weight", count, hidden) for name, count in parts])

    def _fused_bias(self, names: list[str], rows: tuple[int, ...]) -> Tensor:
        parts = zip(names, rows, strict=True)
        return torch.cat([self.take(f"{name}.bias", count) for name, count in parts])

    def _experts(self, prefix: str, experts: ExpertShape) -> tuple[Tensor, Tensor, Tensor]:
        """Router, gate-and-up and down. Copied expert by expert: no second copy of all exists."""
        hidden, names = self.shape.hidden_size, experts.names
        module = f"{prefix}{names.module}."
        router = self.take(f"{module}gate.weight", experts.count, hidden)
        gate_up = router.new_empty(experts.count, 2 * experts.width, hidden)
        down = router.new_empty(experts.count, hidden, experts.width)
        for number in range(experts.count):
            expert = f"{module}experts.{number}."
            gate_and_up = [f"{expert}{names.gate}", f"{expert}{names.up}"]
            gate_up[number] = self._fused(gate_and_up, (experts.width, experts.width))
            down[number] = self.take(f"{expert}{names.down}.weight", hidden, experts.width)
        return router, gate_up, down
