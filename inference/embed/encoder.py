"""A BERT encoder in torch: padded runs of token ids to unit vectors, on CPU and CUDA alike."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from inference.compact.load.checkpoint import Checkpoint
from inference.embed.shape import EncoderShape

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
# Rows of a middling step; the best of a few multiplications counts.
PROBE_ROWS = 512
PROBE_REPEATS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Affine:
    weight: Tensor
    bias: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer; the projections to queries, keys and values are fused."""

    qkv: Affine
    out: Affine
    attention_norm: Affine
    up: Affine
    down: Affine
    norm: Affine


class Encoder:
    """Weights and the forward pass. Raises `ModelError` where the weights do not fit the shape."""

    def __init__(self, folder: Path, shape: EncoderShape, *, dtype: str, device: str) -> None:
        self.shape = shape
        self.device = device
        tensors = _Tensors(Checkpoint(folder, DTYPES[dtype], device), shape)
        self.words = tensors.table("word_embeddings", shape.vocab_size)
        # Every input is one text, so all its tokens are of the first type.
        kinds = tensors.table("token_type_embeddings", shape.token_types)
        self.positions = tensors.table("position_embeddings", shape.context_window) + kinds[0]
        self.norm = tensors.norm("embeddings.LayerNorm")
        self.layers = [tensors.layer(f"encoder.layer.{i}.") for i in range(shape.layers)]

    @torch.inference_mode()
    def encode(self, inputs: list[list[int]]) -> Tensor:
        """Unit vectors [input, dimension], float32 on the CPU. Inputs must not be empty."""
        longest = max(map(len, inputs))
        padded = [ids + [0] * (longest - len(ids)) for ids in inputs]
        lengths = torch.tensor([len(ids) for ids in inputs], device=self.device)
        real = torch.arange(longest, device=self.device) < lengths[:, None]
        seen = None if bool(real.all()) else real[:, None, None, :]
        x = self._norm(
            self.words[torch.tensor(padded, device=self.device)] + self.positions[:longest],
            self.norm,
        )
        for layer in self.layers:
            x = self._norm(x + self._attend(x, layer, seen), layer.attention_norm)
            inner = F.gelu(F.linear(x, layer.up.weight, layer.up.bias))
            x = self._norm(x + F.linear(inner, layer.down.weight, layer.down.bias), layer.norm)
        return F.normalize(self._pool(x.float(), real), dim=-1).cpu()

    def _attend(self, x: Tensor, layer: Layer, seen: Tensor | None) -> Tensor:
        batch, length, hidden = x.shape
        heads = self.shape.heads
        qkv = F.linear(x, layer.qkv.weight, layer.qkv.bias)
        qkv = qkv.view(batch, length, 3, heads, hidden // heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], attn_mask=seen)
        mixed = mixed.transpose(1, 2).reshape(batch, length, hidden)
        return F.linear(mixed, layer.out.weight, layer.out.bias)

    def _pool(self, x: Tensor, real: Tensor) -> Tensor:
        if self.shape.pooling == "cls":
            return x[:, 0]
        weights = real[:, :, None].float()
        return (x * weights).sum(dim=1) / weights.sum(dim=1)

    def _norm(self, x: Tensor, norm: Affine) -> Tensor:
        size = (self.shape.hidden_size,)
        return F.layer_norm(x, size, norm.weight, norm.bias, self.shape.norm_eps)


class _Tensors:
    """Weights under their names in a BERT checkpoint."""

    def __init__(self, checkpoint: Checkpoint, shape: EncoderShape) -> None:
        self._take = checkpoint.take
        self._shape = shape

    def table(self, name: str, rows: int) -> Tensor:
        return self._take(f"embeddings.{name}.weight", rows, self._shape.hidden_size)

    def norm(self, name: str) -> Affine:
        """A normalization over the hidden size."""
        size = self._shape.hidden_size
        weight, bias = self._take(f"{name}.weight", size), self._take(f"{name}.bias", size)
        return Affine(weight=weight, bias=bias)

    def linear(self, name: str, outer: int, inner: int) -> Affine:
        """A projection from `inner` to `outer` values."""
        weight = self._take(f"{name}.weight", outer, inner)
        return Affine(weight=weight, bias=self._take(f"{name}.bias", outer))

    def layer(self, prefix: str) -> Layer:
        hidden, inner = self._shape.hidden_size, self._shape.intermediate_size
        parts = [
            self.linear(f"{prefix}attention.self.{name}", hidden, hidden)
            for name in ("query", "key", "value")
        ]
        return Layer(
            qkv=Affine(
                weight=torch.cat([part.weight for part in parts]),
                bias=torch.cat([part.bias for part in parts]),
            ),
            out=self.linear(f"{prefix}attention.output.dense", hidden, hidden),
            attention_norm=self.norm(f"{prefix}attention.output.LayerNorm"),
            up=self.linear(f"{prefix}intermediate.dense", inner, hidden),
            down=self.linear(f"{prefix}output.dense", hidden, inner),
            norm=self.norm(f"{prefix}output.LayerNorm"),
        )


def bfloat16_pays(shape: EncoderShape) -> bool:
    """Time one projection in both dtypes: without bf16 instructions it can be many times slower."""
    narrow, wide = (_linear_s(shape, dtype) for dtype in DTYPES.values())
    return narrow < wide


def _linear_s(shape: EncoderShape, dtype: torch.dtype) -> float:
    weight = torch.full((shape.intermediate_size, shape.hidden_size), 0.5, dtype=dtype)
    x = torch.full((PROBE_ROWS, shape.hidden_size), 0.5, dtype=dtype)
    times = []
    for _ in range(PROBE_REPEATS):
        began_s = time.perf_counter()
        F.linear(x, weight)
        times.append(time.perf_counter() - began_s)
    return min(times)
