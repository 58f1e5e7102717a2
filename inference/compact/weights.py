"""Weights of a Hugging Face checkpoint folder: one safetensors file, or shards with an index.

Every complaint is a `ModelError` that names the file or the tensor.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from inference.compact.models.shape import ModelShape
from inference.compact.placement import Placement
from inference.engines.base import ModelError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerWeights:
    """One decoder layer; projections that read the same input are fused."""

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """A whole model. `head` is the embedding itself where the two are tied."""

    embedding: Tensor
    layers: list[LayerWeights]
    norm: Tensor
    head: Tensor


def load_weights(folder: Path, shape: ModelShape, placement: Placement) -> Weights:
    """Read all tensors the shape asks for, in the placement's dtype and on its device."""
    tensors = _Tensors(folder, placement)
    embedding = tensors.take("model.embed_tokens.weight", shape.vocab_size, shape.hidden_size)
    head = embedding
    if not shape.tied_embeddings:
        head = tensors.take("lm_head.weight", shape.vocab_size, shape.hidden_size)
    return Weights(
        embedding=embedding,
        layers=[_layer(tensors, f"model.layers.{i}.", shape) for i in range(shape.layers)],
        norm=tensors.take("model.norm.weight", shape.hidden_size),
        head=head,
    )


def _layer(tensors: _Tensors, prefix: str, shape: ModelShape) -> LayerWeights:
    hidden, inner = shape.hidden_size, shape.intermediate_size
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    rows = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
    qkv = [tensors.take(f"{attention}{name}.weight", n, hidden) for name, n in rows.items()]
    bias, q_norm, k_norm = None, None, None
    if shape.qkv_bias:
        bias = torch.cat([tensors.take(f"{attention}{name}.bias", n) for name, n in rows.items()])
    if shape.qk_norm:
        q_norm = tensors.take(f"{attention}q_norm.weight", shape.head_dim)
        k_norm = tensors.take(f"{attention}k_norm.weight", shape.head_dim)
    gate_up = [tensors.take(f"{mlp}{name}.weight", inner, hidden) for name in _GATE_UP]
    return LayerWeights(
        input_norm=tensors.take(f"{prefix}input_layernorm.weight", hidden),
        qkv=torch.cat(qkv),
        qkv_bias=bias,
        q_norm=q_norm,
        k_norm=k_norm,
        out=tensors.take(f"{attention}o_proj.weight", hidden, queries),
        mlp_norm=tensors.take(f"{prefix}post_attention_layernorm.weight", hidden),
        gate_up=torch.cat(gate_up),
        down=tensors.take(f"{mlp}down_proj.weight", hidden, inner),
    )


_GATE_UP = ("gate_proj", "up_proj")


class _Tensors:
    """Tensors of a folder by name, one at a time, so that no second copy of the model exists."""

    def __init__(self, folder: Path, placement: Placement) -> None:
        self.folder = folder
        self.placement = placement
        self.files = _files_of_tensors(folder)

    def take(self, name: str, *size: int) -> Tensor:
        """Read one tensor and check its size."""
        if name not in self.files:
            raise ModelError(f"{self.folder}: no weights for {name}")
        path = self.folder / self.files[name]
        try:
            with safe_open(path, framework="pt") as file:
                tensor: Tensor = file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{path}: {name}: {error}") from error
        if tuple(tensor.shape) != size:
            raise ModelError(f"{path}: {name}: is {tuple(tensor.shape)}, must be {size}")
        return tensor.to(dtype=self.placement.torch_dtype, device=self.placement.device)


def _files_of_tensors(folder: Path) -> dict[str, str]:
    """Which file holds which tensor."""
    index, single = folder / INDEX, folder / SINGLE
    if index.exists():
        try:
            files = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return {str(name): Path(file).name for name, file in files.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelError(f"{index}: no usable weight_map: {error!r}") from error
    try:
        with safe_open(single, framework="pt") as file:
            return dict.fromkeys(file.keys(), SINGLE)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{single}: {error}") from error
