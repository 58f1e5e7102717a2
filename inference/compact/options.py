"""Settings of the compact engine, with bounds checked where they are made. Imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MEBIBYTE = 1024 * 1024
PLACES = {"device": ("auto", "cpu", "cuda"), "dtype": ("auto", "bfloat16", "float32")}
# Bits of a weight that is rounded to whole numbers as it is read.
FP8 = "fp8"
QUANTIZE = {"off": 0, "int8": 8, "int4": 4, FP8: 0}
CHOICES = {
    **PLACES,
    "kernels": ("auto", "native", "torch"),
    "speculate": ("auto", "on", "off"),
    "quantize": tuple(QUANTIZE),
    "kv_dtype": ("auto", "int8", FP8),
    "overlap": ("auto", "on", "off"),
}
# What suits a GPU where nothing else is asked for.
GPU_DEFAULTS: dict[str, Any] = {
    "step_tokens": 8192, "mixed_prefill_tokens": 2048, "running_max": 256,
}  # fmt: skip
LEAST_ONE = (
    "block_size", "kv_bytes", "step_tokens", "mixed_prefill_tokens", "drafts_max", "kv_blocks",
    "mixed_ms", "threads",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CompactOptions:
    """How to run a model. The defaults suit the shipped model on two CPU cores; see `GPU_DEFAULTS`.

    `step_tokens` bounds the tokens of one engine step; `mixed_prefill_tokens` bounds its prompt
    tokens while other requests are decoding, and `mixed_ms` what a step with prompts of several
    requests should take, so that a next token or a short prompt is not kept waiting; None follows
    what a step without prompts takes, see `schedule/pace.py`.
    `kv_bytes` None is a fixed size on a CPU; on a GPU it is what weights and the largest step leave
    of `gpu_memory`, the share of the device's memory that may be in use. `kv_blocks` overrides it.
    `name` is what the model is offered as (default: its folder).
    `threads` None leaves torch's own choice. `speculate` auto drafts tokens by prompt lookup, up to
    `drafts_max` per sequence and step, as long as that pays; on drafts in any case.
    `kernels` native is our own C code on CPUs that it is written for; auto takes it where it can.
    `quantize` rounds weights that are stored in full, and `kv_dtype` keys and values in the
    cache (auto: they are as in `dtype`); only the native code can use whole numbers, and
    only torch `fp8`, weights of it only in models without experts.
    `overlap` plans a step while the one before is computed; auto does so on a GPU, since a CPU
    computes both with the same cores.
    """

    name: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    block_size: int = 32
    kv_bytes: int | None = None
    kv_blocks: int | None = None
    gpu_memory: float = 0.9
    step_tokens: int = 1024
    mixed_prefill_tokens: int = 512
    mixed_ms: int | None = None
    running_max: int = 64
    threads: int | None = None
    speculate: str = "auto"
    drafts_max: int = 4
    kernels: str = "auto"
    quantize: str = "off"
    kv_dtype: str = "auto"
    overlap: str = "auto"

    def __post_init__(self) -> None:
        check_fields(self, CHOICES, LEAST_ONE)
        if not 1 <= self.running_max <= self.step_tokens:
            raise ValueError("running_max: must lie between 1 and step_tokens")
        if not 0 < self.gpu_memory <= 1:
            raise ValueError("gpu_memory: must be above 0 and at most 1")


def check_fields(
    options: object, choices: Mapping[str, Sequence[str]], least_one: Sequence[str]
) -> None:
    """Raise a ValueError that names a field with none of its choices, or a number below 1."""
    for field, allowed in choices.items():
        if (value := getattr(options, field)) not in allowed:
            raise ValueError(f"{field}: {value!r} is not one of {', '.join(allowed)}")
    for field in least_one:
        if (value := getattr(options, field)) is not None and value < 1:
            raise ValueError(f"{field}: must be at least 1")
