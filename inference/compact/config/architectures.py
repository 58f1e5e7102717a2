"""The architectures that can be served: what a name implies and which fields of config.json count.

Fields that an architecture does not use are ignored, as its reference implementation ignores them.
"""

from dataclasses import dataclass
from enum import Enum


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
