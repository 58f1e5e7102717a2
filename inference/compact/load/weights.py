"""The weights of a decoder, fused and split as it wants them, from a checkpoint folder.

Every complaint is a `ModelError` that names the file or the tensor.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from inference.compact.config.architectures import ExpertShape
from inference.compact.config.shape import ModelShape
from inference.compact.grouped import Matrix, dense
from inference.compact.load.checkpoint import Affine, Checkpoint, open_source
from inference.compact.load.placement import Placement
from inference.compact.load.rounding import rounded
from inference.compact.options import QUANTIZE

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerWeights:
    """One decoder layer; projections that read the same input are fused.

    `head_norms` are those of queries and of keys. In a layer with experts `router` is
    `[experts, hidden]`, and `gate_up` and `down` are stacked over the experts.
    """

    input_norm: Tensor
    qkv: Affine
    head_norms: tuple[Tensor, Tensor] | None
    out: Affine
    mlp_norm: Tensor
    gate_up: Affine
    down: Affine
    router: Tensor | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """A whole model. `head` is the embedding where the two are tied, as it is stored."""

    embedding: Tensor
    layers: list[LayerWeights]
    norm: Tensor
    head: Matrix


def load_weights(folder: Path, shape: ModelShape, placement: Placement) -> Weights:
    """Read all tensors the shape asks for, in the placement's dtype and on its device."""
    checkpoint = Checkpoint(
        open_source(folder, shape),
        placement.torch_dtype,
        placement.device,
        dense=placement.kernels != "native",
        quantize=placement.quantize,
    )
    loader = _Loader(checkpoint, shape)
    size = shape.vocab_size, shape.hidden_size
    stored = checkpoint.matrix(EMBEDDING, *size)
    head = stored if shape.tied_embeddings else checkpoint.matrix(HEAD, *size)
    weights = Weights(
        embedding=dense(stored).to(placement.torch_dtype),
        layers=[loader.layer(index) for index in range(shape.layers)],
        norm=checkpoint.take("model.norm.weight", shape.hidden_size),
        head=rounded(head, "int8" if QUANTIZE[placement.quantize] else "off"),
    )
    checkpoint.refuse_leftovers(HEAD if shape.tied_embeddings else None)
    if checkpoint.widened:
        log.info("%d quantized weights take as much memory as others here", checkpoint.widened)
    return weights


class _Loader:
    def __init__(self, checkpoint: Checkpoint, shape: ModelShape) -> None:
        self.take = checkpoint.take
        self.affine = checkpoint.affine
        self.shape = shape

    def layer(self, index: int) -> LayerWeights:
        shape, hidden = self.shape, self.shape.hidden_size
        prefix = f"model.layers.{index}."
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        qkv = {f"{attention}q_proj": queries} | {f"{attention}{name}_proj": keys for name in "kv"}
        inner, router, experts = shape.intermediate_size, None, shape.experts
        if experts is not None and index in experts.layers:
            router, gate_up, down = self._experts(prefix, experts)
        else:
            gates = {f"{mlp}gate_proj": inner, f"{mlp}up_proj": inner}
            gate_up = self.affine(gates, hidden, biased=shape.mlp_bias)
            down = self.affine({f"{mlp}down_proj": hidden}, inner, biased=shape.mlp_bias)
        norms = None
        if shape.qk_norm:
            size = shape.head_dim
            query_norm, key_norm = (self.take(f"{attention}{n}_norm.weight", size) for n in "qk")
            norms = query_norm, key_norm
        return LayerWeights(
            input_norm=self.take(f"{prefix}input_layernorm.weight", hidden),
            qkv=self.affine(qkv, hidden, biased=shape.qkv_bias),
            head_norms=norms,
            out=self.affine({f"{attention}o_proj": hidden}, queries, biased=shape.out_bias),
            mlp_norm=self.take(f"{prefix}post_attention_layernorm.weight", hidden),
            gate_up=gate_up,
            down=down,
            router=router,
        )

    def _experts(self, prefix: str, experts: ExpertShape) -> tuple[Tensor, Affine, Affine]:
        """Router, gate-and-up and down. Copied expert by expert: no second copy of all exists."""
        hidden, names = self.shape.hidden_size, experts.names
        module = f"{prefix}{names.module}."
        router = self.take(f"{module}gate.weight", experts.count, hidden)
        gate_up = router.new_empty(experts.count, 2 * experts.width, hidden)
        down = router.new_empty(experts.count, hidden, experts.width)
        for number in range(experts.count):
            expert = f"{module}experts.{number}."
            gates = (f"{expert}{name}.weight" for name in (names.gate, names.up))
            gate_up[number] = torch.cat([self.take(name, experts.width, hidden) for name in gates])
            down[number] = self.take(f"{expert}{names.down}.weight", hidden, experts.width)
        return router, Affine(gate_up), Affine(down)
