"""The model that is trained: a plain Llama forward pass in torch, with Hugging Face weight names.

It is written for training only (whole sequences, no KV cache) and is not the serving engine.
Its state dict is the checkpoint: names and the rotate-half RoPE convention are those of
`LlamaForCausalLM`, so no tensor is renamed or permuted on export.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class ModelConfig:
    """The shape of the network; the defaults are the shipped model."""

    vocab_size: int = 4096
    hidden_size: int = 256
    layers: int = 6
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 32
    intermediate_size: int = 704
    positions_max: int = 4096
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5


class RMSNorm(nn.Module):
    """Root-mean-square normalization, computed in float32 as the public implementations do."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * (wide * scale).to(x.dtype)


def rope_tables(length: int, config: ModelConfig) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position and dimension, each `[length, head_dim]`, float32."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(
        torch.arange(length, dtype=torch.float32), 1.0 / config.rope_theta**exponents
    )
    both = torch.cat((angles, angles), dim=-1)
    return both.cos(), both.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn queries or keys by their position (the rotate-half convention)."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Attention(nn.Module):
    """Causal self-attention with fewer key and value heads than query heads (GQA)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        hidden, dim = config.hidden_size, config.head_dim
        self.q_proj = nn.Linear(hidden, config.heads * dim, bias=False)
        self.k_proj = nn.Linear(hidden, config.kv_heads * dim, bias=False)
        self.v_proj = nn.Linear(hidden, config.kv_heads * dim, bias=False)
        self.o_proj = nn.Linear(config.heads * dim, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rows, length, _ = x.shape
        dim = self.config.head_dim
        q = self.q_proj(x).view(rows, length, -1, dim).transpose(1, 2)
        k = self.k_proj(x).view(rows, length, -1, dim).transpose(1, 2)
        v = self.v_proj(x).view(rows, length, -1, dim).transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True
        )
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(rows, length, -1))
        return out


class FeedForward(nn.Module):
    """The gated feed-forward block (SwiGLU)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One decoder layer: attention and feed-forward, each behind a norm and a residual."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = FeedForward(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Decoder(nn.Module):
    """Embedding, layers and final norm: everything but the output head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids)
        cos, sin = (table.to(x) for table in rope_tables(ids.shape[1], self.config))
        for layer in self.layers:
            x = layer(x, cos, sin)
        out: Tensor = self.norm(x)
        return out


class Llama(nn.Module):
    """The whole network; the output head is the embedding matrix (tied)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits `[rows, length, vocab]` for token ids `[rows, length]`."""
        return functional.linear(self.model(ids), self.model.embed_tokens.weight)

    def loss(self, ids: Tensor, targets: Tensor, wanted: Tensor) -> Tensor:
        """Mean cross-entropy over the positions where `wanted` is true.

        Only those rows meet the output head, a fifth of all the arithmetic in a model this small.
        """
        hidden = self.model(ids)[wanted]
        logits = functional.linear(hidden, self.model.embed_tokens.weight)
        return functional.cross_entropy(logits.float(), targets[wanted])

    def initialize(self, generator: torch.Generator) -> None:
        """Normal weights of 0.02, with the residual outputs scaled down by depth."""
        residual = 0.02 / (2 * self.config.layers) ** 0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                continue
            deep = name.endswith(("o_proj.weight", "down_proj.weight"))
            nn.init.normal_(parameter, std=residual if deep else 0.02, generator=generator)

    def parameter_count(self) -> int:
        """How many numbers the model has (the tied embedding counts once)."""
        return sum(parameter.numel() for parameter in self.parameters())
