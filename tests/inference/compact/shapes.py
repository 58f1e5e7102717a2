"""One tiny checkpoint for each shape that can be served: its kind and what is set beside SIZES."""

from __future__ import annotations

from typing import Any

WINDOW = 21


def _rope(kind: str, **values: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 5000.0, **values}}


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
EXPERTS = {"num_local_experts": 8, "num_experts_per_tok": 3}
QWEN_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48}

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama-sharded": ("llama", {"max_shard_size": "60KB"}),
    "llama-biased": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-no-groups": ("llama", {"num_key_value_heads": 4}),
    "llama-wide-heads": ("llama", {"head_dim": 24}),
    "llama3-rope": ("llama", _rope("llama3", original_max_position_embeddings=64, **LLAMA3)),
    "linear-rope": ("llama", _rope("linear", factor=2.5)),
    "yarn-rope": ("qwen2", _rope("yarn", factor=4.0, original_max_position_embeddings=64)),
    "yarn-rope-weighted": (
        "llama",
        _rope(
            "yarn",
            factor=4.0,
            original_max_position_embeddings=64,
            mscale=0.7,
            mscale_all_dim=1.3,
            beta_fast=24.0,
            beta_slow=2.0,
            truncate=False,
        ),
    ),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral-window": ("mistral", {"sliding_window": WINDOW}),
    "qwen2": ("qwen2", {}),
    "qwen2-window": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {"tie_word_embeddings": True}),
    "qwen3-biased": ("qwen3", {"attention_bias": True}),
    "qwen3-window": (
        "qwen3",
        {
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "smollm3": ("smollm3", {"no_rope_layer_interval": 2}),
    "mixtral": ("mixtral", EXPERTS),
    "mixtral-window": ("mixtral", {"sliding_window": WINDOW, **EXPERTS}),
    "qwen3-moe": ("qwen3-moe", {"norm_topk_prob": True, **QWEN_EXPERTS}),
    "qwen3-moe-some-dense": ("qwen3-moe", {"mlp_only_layers": [1], **QWEN_EXPERTS}),
}
