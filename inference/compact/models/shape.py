"""What a checkpoint folder says about its model: config.json and generation_config.json, checked.

Reads no weights and imports no torch. Whatever the decoder could not compute exactly is refused
here by field name, rather than served wrongly.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.engines.base import ModelError

# Architectures and what sets them apart: (bias on q, k, v; norm on q and k heads).
ARCHITECTURES = {
    "LlamaForCausalLM": (False, False),
    "MistralForCausalLM": (False, False),
    "Qwen2ForCausalLM": (True, False),
    "Qwen3ForCausalLM": (False, True),
}
ROPE_THETA_DEFAULT = 10_000.0


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """Llama 3's stretching of the rotary frequencies."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Everything the decoder needs to know but the weights."""

    architecture: str
    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    context_window: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    tied_embeddings: bool
    qkv_bias: bool
    qk_norm: bool
    eos: frozenset[int]


class _Fields:
    """Typed access to a JSON object; every complaint names the file and the field."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelError(f"{path}: {error}") from error
        if not isinstance(self.values, dict):
            raise ModelError(f"{path}: not a JSON object")

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(name, "must be a positive integer")
        return value

    def number(self, name: str, default: float) -> float:
        value = self.values.get(name, default)
        if not isinstance(value, int | float) or value <= 0:
            raise self.error(name, "must be a positive number")
        return float(value)

    def require(self, name: str, *allowed: object) -> None:
        if self.values.get(name, allowed[0]) not in allowed:
            raise self.error(name, f"{self.values[name]!r} is not supported")

    def error(self, name: str, complaint: str) -> ModelError:
        return ModelError(f"{self.path}: {name}: {complaint}")


def read_shape(folder: Path) -> ModelShape:
    """Read and check a checkpoint's configuration; raises `ModelError`."""
    fields = _Fields(folder / "config.json")
    architecture = _architecture(fields)
    llama_bias = architecture == "LlamaForCausalLM" and bool(fields.values.get("attention_bias"))
    qkv_bias, qk_norm = ARCHITECTURES[architecture]
    _refuse_unsupported(fields, llama_bias)
    heads = fields.integer("num_attention_heads")
    kv_heads = fields.integer("num_key_value_heads", heads)
    if heads % kv_heads:
        raise fields.error("num_key_value_heads", f"must divide num_attention_heads = {heads}")
    rope = _rope_fields(fields)
    hidden_size = fields.integer("hidden_size")
    return ModelShape(
        architecture=architecture,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        layers=fields.integer("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=fields.integer("head_dim", hidden_size // heads),
        intermediate_size=fields.integer("intermediate_size"),
        context_window=fields.integer("max_position_embeddings"),
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope_theta=_theta(fields, rope),
        rope_scaling=_scaling(fields, rope),
        tied_embeddings=bool(fields.values.get("tie_word_embeddings", False)),
        qkv_bias=qkv_bias,
        qk_norm=qk_norm,
        eos=_end_tokens(folder, fields),
    )


def _architecture(fields: _Fields) -> str:
    names = fields.values.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or names[0] not in ARCHITECTURES:
        raise fields.error(
            "architectures", f"{names!r} is not supported; one of {', '.join(ARCHITECTURES)} is"
        )
    return str(names[0])


def _refuse_unsupported(fields: _Fields, llama_bias: bool) -> None:
    fields.require("hidden_act", "silu")
    fields.require("mlp_bias", False)
    if llama_bias:
        raise fields.error("attention_bias", "true is not supported for this architecture")
    window = fields.values.get("sliding_window")
    used = fields.values.get("use_sliding_window", fields.values.get("model_type") == "mistral")
    if used and window is not None and window < fields.integer("max_position_embeddings"):
        raise fields.error("sliding_window", "a window below the context is not supported")


def _rope_fields(fields: _Fields) -> dict[str, Any]:
    """`rope_parameters` of newer files, `rope_scaling` of older ones."""
    for name in ("rope_parameters", "rope_scaling"):
        rope = fields.values.get(name)
        if isinstance(rope, dict):
            return rope
        if rope is not None:
            raise fields.error(name, "must be an object")
    return {}


def _theta(fields: _Fields, rope: dict[str, Any]) -> float:
    theta = rope.get("rope_theta", fields.values.get("rope_theta", ROPE_THETA_DEFAULT))
    if not isinstance(theta, int | float) or theta <= 0:
        raise fields.error("rope_theta", "must be a positive number")
    return float(theta)


def _scaling(fields: _Fields, rope: dict[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise fields.error("rope_type", f"{kind!r} is not supported; default and llama3 are")
    try:
        return RopeScaling(
            factor=float(rope["factor"]),
            low_freq_factor=float(rope["low_freq_factor"]),
            high_freq_factor=float(rope["high_freq_factor"]),
            original_context=int(rope["original_max_position_embeddings"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise fields.error("rope_scaling", f"missing or bad {error}") from error


def _end_tokens(folder: Path, fields: _Fields) -> frozenset[int]:
    """The generation settings' end tokens where there are any, else the model's."""
    sources = [fields]
    if (folder / "generation_config.json").exists():
        sources.insert(0, _Fields(folder / "generation_config.json"))
    for source in sources:
        value = source.values.get("eos_token_id")
        if value is None:
            continue
        tokens = value if isinstance(value, list) else [value]
        if not all(isinstance(token, int) and token >= 0 for token in tokens):
            raise source.error("eos_token_id", "must be a token id or a list of them")
        return frozenset(tokens)
    return frozenset()
