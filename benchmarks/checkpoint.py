"""A Llama checkpoint of about 100 million random parameters, for bandwidth at batch 1."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

HIDDEN = 768
LAYERS = 14
HEADS = 12
INNER = 2048
SCALE = 0.02
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "intermediate_size": INNER,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}


def write_checkpoint(folder: Path, like: Path, *, vocabulary: int) -> int:
    """Write it with the tokenizer of `like`; returns the bytes that one decode step must read."""
    torch.manual_seed(0)
    tensors: dict[str, torch.Tensor] = {}

    def matrix(name: str, rows: int, columns: int) -> None:
        tensors[name] = (torch.randn(rows, columns) * SCALE).bfloat16()

    def norm(name: str) -> None:
        tensors[name] = torch.ones(HIDDEN, dtype=torch.bfloat16)

    matrix("model.embed_tokens.weight", vocabulary, HIDDEN)
    norm("model.norm.weight")
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for part in ("q", "k", "v", "o"):
            matrix(f"{prefix}self_attn.{part}_proj.weight", HIDDEN, HIDDEN)
        for part in ("gate", "up"):
            matrix(f"{prefix}mlp.{part}_proj.weight", INNER, HIDDEN)
        matrix(f"{prefix}mlp.down_proj.weight", HIDDEN, INNER)
        norm(f"{prefix}input_layernorm.weight")
        norm(f"{prefix}post_attention_layernorm.weight")
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": vocabulary}))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(like / name, folder / name)
    # The embedding is the head too, so every tensor is read once a step.
    return sum(tensor.nbytes for tensor in tensors.values())
