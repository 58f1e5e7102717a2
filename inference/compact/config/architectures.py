"""The architectures that can be served: what a name implies and which fields of config.json count;
and what differs from layer to layer: the attention window, turning by position, experts.

Fields that an architecture does not use are ignored, as its reference implementation ignores them.
"""

from dataclasses import dataclass
from enum import Enum

from inference.compact.config.fields import Fields

# Strides that torch's grouped product takes are multiples of 16 bytes, so of 8 bfloat16 numbers.
EXPERT_SIZE_STEP = 8
ROPE_INTERVAL_DEFAULT = 4


class Windows(Enum):
    """Which layers see only the last `sliding_window` tokens."""

    NONE = "none"
    ALL = "all, where sliding_window is given"
    SWITCHED = "all, where use_sliding_window is true"
    LAYERED = "some, where use_sliding_window is true: layer_types, or those from max_window_layers"


@dataclass(frozen=True, kw_only=True)
class ExpertNames:
    """How a mixture-of-experts checkpoint calls its parts, under `model.layers.N.`."""

    module: str
    gate: str
    up: str
    down: str


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Differences from plain Llama. `qkv_bias` is always there; `heeds` lists optional biases."""

    qkv_bias: bool = False
    heeds: frozenset[str] = frozenset()
    qk_norm: bool = False
    windows: Windows = Windows.NONE
    window_default: int | None = None
    unturned_layers: bool = False
    experts: ExpertNames | None = None
    normalized_experts: bool = False
    rope_theta: float = 10_000.0
    tied_embeddings: bool = False


ARCHITECTURES = {
    "LlamaForCausalLM": Architecture(heeds=frozenset({"attention_bias", "mlp_bias"})),
    "MistralForCausalLM": Architecture(windows=Windows.ALL, window_default=4096),
    "MixtralForCausalLM": Architecture(
        windows=Windows.ALL,
        experts=ExpertNames(module="block_sparse_moe", gate="w1", up="w3", down="w2"),
        normalized_experts=True,
        rope_theta=1_000_000.0,
    ),
    "Qwen2ForCausalLM": Architecture(qkv_bias=True, windows=Windows.LAYERED),
    "Qwen3ForCausalLM": Architecture(
        heeds=frozenset({"attention_bias"}), qk_norm=True, windows=Windows.LAYERED
    ),
    "Qwen3MoeForCausalLM": Architecture(
        heeds=frozenset({"attention_bias"}),
        qk_norm=True,
        windows=Windows.SWITCHED,
        experts=ExpertNames(module="mlp", gate="gate_proj", up="up_proj", down="down_proj"),
    ),
    "SmolLM3ForCausalLM": Architecture(
        heeds=frozenset({"attention_bias", "mlp_bias"}),
        unturned_layers=True,
        rope_theta=2_000_000.0,
        tied_embeddings=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class ExpertShape:
    """A mixture of experts: each row goes to `per_token` of `count`, each as wide as `width`.

    `normalized`: the weights of the chosen sum to one. `layers`: which have it; others are dense.
    """

    names: ExpertNames
    count: int
    per_token: int
    width: int
    normalized: bool
    layers: frozenset[int]


def read_windows(
    fields: Fields, architecture: Architecture, layers: int, context: int
) -> tuple[int | None, ...]:
    """Tokens that each layer sees, its own included; None for all."""
    everywhere: tuple[int | None, ...] = (None,) * layers
    rule = architecture.windows
    switched = rule in (Windows.SWITCHED, Windows.LAYERED)
    if rule is Windows.NONE or (switched and not fields.flag("use_sliding_window")):
        fields.require("use_sliding_window", False)
        return everywhere
    # Null switches the window off; a field that is not there at all means the default.
    default = None if "sliding_window" in fields.nulls else architecture.window_default
    if "sliding_window" not in fields.values and default is None:
        return everywhere
    window = fields.integer("sliding_window", default)
    if window >= context:
        return everywhere
    if rule is not Windows.LAYERED:
        return (window,) * layers
    kinds = fields.per_layer("layer_types", layers, "full_attention", "sliding_attention")
    if kinds is not None:
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    first = fields.integer("max_window_layers", least=0)
    return tuple(window if layer >= first else None for layer in range(layers))


def read_turned(fields: Fields, architecture: Architecture, layers: int) -> tuple[bool, ...]:
    """Whether each layer turns queries and keys by their position."""
    if not architecture.unturned_layers:
        return (True,) * layers
    marks = fields.per_layer("no_rope_layers", layers, 0, 1)
    if marks is not None:
        # Despite the field's name, 1 means that the layer has rotary embedding.
        return tuple(bool(mark) for mark in marks)
    interval = fields.integer("no_rope_layer_interval", ROPE_INTERVAL_DEFAULT)
    return tuple((layer + 1) % interval != 0 for layer in range(layers))


def read_experts(fields: Fields, architecture: Architecture, layers: int) -> ExpertShape | None:
    """The mixture of experts, if the architecture has one and any layer uses it."""
    if architecture.experts is None:
        return None
    width_name = "intermediate_size"
    sparse = frozenset(range(layers))
    normalized = True
    if not architecture.normalized_experts:
        width_name = "moe_intermediate_size"
        normalized = fields.flag("norm_topk_prob")
        step = fields.integer("decoder_sparse_step", 1)
        dense = fields.values.get("mlp_only_layers", [])
        if not isinstance(dense, list):
            raise fields.error("mlp_only_layers", "must be a list of layer numbers")
        sparse = frozenset(i for i in range(layers) if (i + 1) % step == 0 and i not in dense)
    width = fields.integer(width_name)
    if width % EXPERT_SIZE_STEP:
        raise fields.error(width_name, f"must be a multiple of {EXPERT_SIZE_STEP} for experts")
    count_name = "num_experts" if "num_experts" in fields.values else "num_local_experts"
    count = fields.integer(count_name)
    per_token = fields.integer("num_experts_per_tok")
    if per_token > count:
        raise fields.error("num_experts_per_tok", f"must not exceed {count_name} = {count}")
    return ExpertShape(
        names=architecture.experts,
        count=count,
        per_token=per_token,
        width=width,
        normalized=normalized,
        layers=sparse,
    )
