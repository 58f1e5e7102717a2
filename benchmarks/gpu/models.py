"""Llama-shaped models of random weights, made on the GPU: nothing is written but a config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from inference.compact.config.shape import ModelShape
from inference.compact.load.checkpoint import Affine
from inference.compact.load.placement import Placement
from inference.compact.load.rounding import rounded
from inference.compact.load.weights import LayerWeights, Weights

SCALE = 0.02
COMMON: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128_256,
    "max_position_embeddings": 16_384,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "hidden_act": "silu",
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
# The sizes of Llama 3.2 1B and Llama 3.1 8B.
MODELS: dict[str, dict[str, Any]] = {
    "1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "tie_word_embeddings": True,
    },
    "8b": {
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "tie_word_embeddings": False,
    },
}


def write_config(folder: Path, name: str) -> Path:
    """A checkpoint folder without weights."""
    path = folder / name
    path.mkdir()
    (path / "config.json").write_text(json.dumps({**COMMON, **MODELS[name]}))
    return path


def random_weights(shape: ModelShape, placement: Placement) -> Weights:
    """Normal numbers, of projections rounded as the placement says; norms of one."""
    generator = torch.Generator(placement.device).manual_seed(0)

    def matrix(rows: int, columns: int) -> Tensor:
        made = torch.empty(
            rows, columns, dtype=placement.torch_dtype, device=placement.device
        ).normal_(0.0, SCALE, generator=generator)
        return made

    def projection(rows: int, columns: int) -> Affine:
        return Affine(rounded(matrix(rows, columns), placement.quantize))

    hidden = shape.hidden_size
    ones = torch.ones(hidden, dtype=placement.torch_dtype, device=placement.device)
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    embedding = matrix(shape.vocab_size, hidden)
    layers = [
        LayerWeights(
            input_norm=ones,
            qkv=projection(queries + 2 * keys, hidden),
            head_norms=None,
            out=projection(hidden, queries),
            mlp_norm=ones,
            gate_up=projection(2 * shape.intermediate_size, hidden),
            down=projection(hidden, shape.intermediate_size),
            router=None,
        )
        for _ in range(shape.layers)
    ]
    head = embedding if shape.tied_embeddings else matrix(shape.vocab_size, hidden)
    return Weights(embedding=embedding, layers=layers, norm=ones, head=head)
