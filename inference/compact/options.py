"""Settings of the compact engine, with bounds checked where they are made. Imports no torch."""

from dataclasses import dataclass

MEBIBYTE = 1024 * 1024
DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("auto", "bfloat16", "float32")
KERNELS = ("auto", "native", "torch")
SPECULATE = ("auto", "on", "off")


@dataclass(frozen=True, kw_only=True)
class CompactOptions:
    """How to run a model. The defaults suit the shipped model on two CPU cores.

    `step_tokens` bounds the tokens of one engine step; `mixed_prefill_tokens` bounds its prompt
    tokens while other requests are decoding, so that their next token is not kept waiting.
    `kv_blocks` overrides `kv_bytes`. `name` is what the model is offered as (default: its folder).
    `threads` None leaves torch's own choice. `speculate` auto drafts tokens by prompt lookup, up to
    `drafts_max` per sequence and step, as long as that pays; on drafts in any case.
    `kernels` native is our own C code on CPUs that it is written for; auto takes it where it can.
    """

    name: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    block_size: int = 32
    kv_bytes: int = 256 * MEBIBYTE
    kv_blocks: int | None = None
    step_tokens: int = 1024
    mixed_prefill_tokens: int = 512
    running_max: int = 64
    threads: int | None = None
    speculate: str = "auto"
    drafts_max: int = 4
    kernels: str = "auto"

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise ValueError(f"device: {self.device!r} is not one of {', '.join(DEVICES)}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype: {self.dtype!r} is not one of {', '.join(DTYPES)}")
        if self.kernels not in KERNELS:
            raise ValueError(f"kernels: {self.kernels!r} is not one of {', '.join(KERNELS)}")
        if self.speculate not in SPECULATE:
            raise ValueError(f"speculate: {self.speculate!r} is not one of {', '.join(SPECULATE)}")
        for field in (
            "block_size",
            "kv_bytes",
            "step_tokens",
            "mixed_prefill_tokens",
            "drafts_max",
        ):
            if getattr(self, field) < 1:
                raise ValueError(f"{field}: must be at least 1")
        if not 1 <= self.running_max <= self.step_tokens:
            raise ValueError("running_max: must lie between 1 and step_tokens")
        for field in ("kv_blocks", "threads"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise ValueError(f"{field}: must be at least 1")
