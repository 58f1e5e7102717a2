"""A BERT encoder in torch: padded runs of token ids to unit vectors, on CPU and CUDA alike.

A cross-encoder reads two texts as one input and makes one number of them, their score.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from inference.compact.load.checkpoint import Checkpoint, Plain
from inference.compact.load.placement import DTYPES
from inference.compact.load.safetensors import Safetensors
from inference.embed.shape import EncoderShape


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer; the projections to queries, keys and values are fused."""

    qkv: Plain
    out: Plain
    attention_norm: Plain
    up: Plain
    down: Plain
    norm: Plain


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreHead:
    """What a cross-encoder has besides: `second` makes a token one of the second text."""

    second: Tensor
    pooler: Plain
    label: Plain

    def types(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """What is added to each embedding; the token that ends an input ends its first text."""
        ends = tokens == tokens.gather(1, lengths[:, None] - 1)
        return (ends.cumsum(1) > ends.long())[:, :, None] * self.second

    def score(self, first: Tensor) -> Tensor:
        """Scores in [0, 1], [input, 1], from the states of the first tokens."""
        pooled = torch.tanh(F.linear(first, *self.pooler))
        return torch.sigmoid(F.linear(pooled, *self.label).float())


class Encoder:
    """Weights and the forward pass. Raises `ModelError` where the weights do not fit the shape."""

    def __init__(self, folder: Path, shape: EncoderShape, *, dtype: str, device: str) -> None:
        self.shape = shape
        self.device = device
        stored = Safetensors(folder)
        tensors = _Tensors(Checkpoint(stored, DTYPES[dtype], device, dense=True), shape)
        self.words = tensors.table("word_embeddings", shape.vocab_size)
        # Tokens of one text, or of the first of two, are all of the first type.
        kinds = tensors.table("token_type_embeddings", shape.token_types)
        self.positions = tensors.table("position_embeddings", shape.context_window) + kinds[0]
        self.norm = tensors.affine({"embeddings.LayerNorm": shape.hidden_size})
        self.layers = [tensors.layer(f"encoder.layer.{i}.") for i in range(shape.layers)]
        self.head = tensors.head(kinds) if shape.scores else None

    @torch.inference_mode()
    def encode(self, inputs: list[list[int]]) -> Tensor:
        """Unit vectors or scores [input, dimension], float32 on the CPU; no input may be empty."""
        longest = max(map(len, inputs))
        padded = [ids + [0] * (longest - len(ids)) for ids in inputs]
        lengths = torch.tensor([len(ids) for ids in inputs], device=self.device)
        real = torch.arange(longest, device=self.device) < lengths[:, None]
        seen = None if bool(real.all()) else real[:, None, None, :]
        tokens = torch.tensor(padded, device=self.device)
        x = self.words[tokens] + self.positions[:longest]
        x = self._norm(x if self.head is None else x + self.head.types(tokens, lengths), self.norm)
        for layer in self.layers:
            x = self._norm(x + self._attend(x, layer, seen), layer.attention_norm)
            inner = F.gelu(F.linear(x, *layer.up))
            x = self._norm(x + F.linear(inner, *layer.down), layer.norm)
        if self.head is not None:
            return self.head.score(x[:, 0]).cpu()
        return F.normalize(self._pool(x.float(), real), dim=-1).cpu()

    def _attend(self, x: Tensor, layer: Layer, seen: Tensor | None) -> Tensor:
        batch, length, hidden = x.shape
        heads = self.shape.heads
        qkv = F.linear(x, *layer.qkv)
        qkv = qkv.view(batch, length, 3, heads, hidden // heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], attn_mask=seen)
        mixed = mixed.transpose(1, 2).reshape(batch, length, hidden)
        return F.linear(mixed, *layer.out)

    def _pool(self, x: Tensor, real: Tensor) -> Tensor:
        if self.shape.pooling == "cls":
            return x[:, 0]
        weights = real[:, :, None].float()
        return (x * weights).sum(dim=1) / weights.sum(dim=1)

    def _norm(self, x: Tensor, norm: Plain) -> Tensor:
        return F.layer_norm(x, (self.shape.hidden_size,), *norm, self.shape.norm_eps)


class _Tensors:
    """Weights under their names in a BERT checkpoint."""

    def __init__(self, checkpoint: Checkpoint, shape: EncoderShape) -> None:
        self._checkpoint = checkpoint
        self._shape = shape

    def _named(self, name: str) -> str:
        """A bare encoder's weights have no prefix, those below a head do."""
        return f"bert.{name}" if self._shape.scores and not name.startswith("classifier") else name

    def table(self, name: str, rows: int) -> Tensor:
        named = self._named(f"embeddings.{name}.weight")
        return self._checkpoint.take(named, rows, self._shape.hidden_size)

    def affine(self, rows: dict[str, int], *inner: int) -> Plain:
        named = {self._named(name): count for name, count in rows.items()}
        return self._checkpoint.affine(named, *inner).plain()

    def head(self, kinds: Tensor) -> ScoreHead:
        """The classifier above a cross-encoder; `kinds` are the embeddings of token types."""
        hidden = self._shape.hidden_size
        return ScoreHead(
            second=kinds[1] - kinds[0],
            pooler=self.affine({"pooler.dense": hidden}, hidden),
            label=self.affine({"classifier": 1}, hidden),
        )

    def layer(self, prefix: str) -> Layer:
        hidden, inner = self._shape.hidden_size, self._shape.intermediate_size
        qkv = {f"{prefix}attention.self.{name}": hidden for name in ("query", "key", "value")}
        return Layer(
            qkv=self.affine(qkv, hidden),
            out=self.affine({f"{prefix}attention.output.dense": hidden}, hidden),
            attention_norm=self.affine({f"{prefix}attention.output.LayerNorm": hidden}),
            up=self.affine({f"{prefix}intermediate.dense": inner}, hidden),
            down=self.affine({f"{prefix}output.dense": hidden}, inner),
            norm=self.affine({f"{prefix}output.LayerNorm": hidden}),
        )
