"""Settings of the vLLM engine, checked where they are made. Imports no vLLM."""

from dataclasses import dataclass, field
from typing import Any

from inference.compact.options import check_fields
from inference.contract.capabilities import capabilities

# All that vLLM does whatever its arguments say; they decide on the rest.
CAPABILITIES = capabilities(
    "cancel deadline frequency_penalty grammar ignore_eos logit_bias logprobs min_p min_tokens n"
    " presence_penalty priority prompt_logprobs repetition_penalty salt seed stop_tokens stream"
    " temperature tokens top_k top_p"
)
# What the adapter sets itself, with the reason that a user is shown.
RESERVED = {
    "model": "--model says it",
    "tokenizer": "the gateway tokenizes with the checkpoint's own",
    "served_model_name": "--model-name says it",
    "dtype": "--dtype says it",
    "block_size": "--block-size says it",
    "kv_cache_memory_bytes": "--kv-mib says it",
    "max_num_seqs": "--credits says it",
    "data_parallel_size": "a node is one copy of the model; start more nodes",
    "kv_events_config": "the node follows the cache itself",
    "scheduling_policy": "jobs carry priorities",
    "disable_log_stats": "the load of a node is read from them",
    "enable_logging_iteration_details": "the load of a node is read from them",
    "skip_tokenizer_init": "grammars need the tokenizer",
}


@dataclass(frozen=True, kw_only=True)
class VllmOptions:
    """How to run a model. None leaves vLLM's choice, but on a CPU `kv_bytes` has a default.

    `running_max` jobs and choices are decoded at once. `args` are fields of vLLM's `EngineArgs`,
    such as tensor_parallel_size, quantization or speculative_config; their names are checked when
    the engine is made. `threads` bounds OpenMP on a CPU, and binds it to no core.
    """

    name: str | None = None
    dtype: str = "auto"
    block_size: int | None = None
    kv_bytes: int | None = None
    running_max: int = 64
    threads: int | None = None
    args: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self, {}, ("block_size", "kv_bytes", "running_max", "threads"))
        for name in self.args:
            if name in RESERVED:
                raise ValueError(f"--vllm-args: {name!r} cannot be set here: {RESERVED[name]}")
