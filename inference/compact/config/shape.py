"""What a checkpoint folder says about its model: config.json and generation_config.json, checked.

Reads no weights and imports no torch. Whatever the decoder could not compute exactly is refused
here by field name, rather than served wrongly.
"""

from dataclasses import dataclass
from pathlib import Path

from inference.compact.config.architectures import (
    ARCHITECTURES,
    Architecture,
    ExpertShape,
    read_experts,
    read_turned,
    read_windows,
)
from inference.compact.config.fields import Fields
from inference.compact.config.quantization import Quantization, read_quantization
from inference.compact.config.rope import Rope, YarnScaling, read_rope


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Everything the decoder needs to know but the weights.

    `windows` and `turned` have one entry per layer: how many tokens it sees (None for all), and
    whether it turns queries and keys by their position.
    """

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
    rope: Rope
    tied_embeddings: bool
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norm: bool
    windows: tuple[int | None, ...]
    turned: tuple[bool, ...]
    experts: ExpertShape | None
    quantization: Quantization | None
    eos: frozenset[int]


def read_shape(folder: Path) -> ModelShape:
    """Read and check a checkpoint's configuration; raises `ModelError`."""
    fields = Fields(folder / "config.json")
    name, architecture = _architecture(fields)
    _refuse_unsupported(fields, architecture)
    heads = fields.integer("num_attention_heads")
    kv_heads = fields.integer("num_key_value_heads", heads)
    if heads % kv_heads:
        raise fields.error("num_key_value_heads", f"must divide num_attention_heads = {heads}")
    hidden_size = fields.integer("hidden_size")
    head_dim = fields.integer("head_dim", hidden_size // heads)
    rope = read_rope(
        fields, head_dim, fields.integer("max_position_embeddings"), architecture.rope_theta
    )
    context = _context(fields, rope)
    layers = fields.integer("num_hidden_layers")
    vocab_size = fields.integer("vocab_size")
    attention_bias = _heeded(fields, architecture, "attention_bias")
    return ModelShape(
        architecture=name,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=fields.integer("intermediate_size"),
        context_window=context,
        norm_eps=fields.number("rms_norm_eps"),
        rope=rope,
        tied_embeddings=fields.flag("tie_word_embeddings", architecture.tied_embeddings),
        qkv_bias=architecture.qkv_bias or attention_bias,
        out_bias=attention_bias,
        mlp_bias=_heeded(fields, architecture, "mlp_bias"),
        qk_norm=architecture.qk_norm,
        windows=read_windows(fields, architecture, layers, context),
        turned=read_turned(fields, architecture, layers),
        experts=read_experts(fields, architecture, layers),
        quantization=read_quantization(fields),
        eos=_end_tokens(folder, fields, vocab_size),
    )


def _architecture(fields: Fields) -> tuple[str, Architecture]:
    names = fields.values.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or names[0] not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise fields.error(
            "architectures",
            f"{names!r} is not supported: this engine computes {known}; try --engine vllm",
        )
    return str(names[0]), ARCHITECTURES[names[0]]


def _refuse_unsupported(fields: Fields, architecture: Architecture) -> None:
    fields.require("hidden_act", "silu")
    if not architecture.qkv_bias and "attention_bias" not in architecture.heeds:
        fields.require("attention_bias", False)
    if "mlp_bias" not in architecture.heeds:
        fields.require("mlp_bias", False)


def _heeded(fields: Fields, architecture: Architecture, name: str) -> bool:
    return name in architecture.heeds and fields.flag(name)


def _context(fields: Fields, rope: Rope) -> int:
    """YaRN files often keep the context from before the stretching."""
    context = fields.integer("max_position_embeddings")
    if isinstance(rope.scaling, YarnScaling):
        return max(context, int(rope.scaling.original_context * rope.scaling.factor))
    return context


def _end_tokens(folder: Path, fields: Fields, vocab_size: int) -> frozenset[int]:
    """The generation settings' end tokens where there are any, else the model's."""
    sources = [fields]
    if (folder / "generation_config.json").exists():
        sources.insert(0, Fields(folder / "generation_config.json"))
    for source in sources:
        value = source.values.get("eos_token_id")
        if value is None:
            continue
        tokens = value if isinstance(value, list) else [value]
        if not all(isinstance(token, int) and 0 <= token < vocab_size for token in tokens):
            raise source.error("eos_token_id", f"must be one or more ids below {vocab_size}")
        return frozenset(tokens)
    return frozenset()
