"""Settings of the embed engine, with bounds checked where they are made. Imports no torch."""

from dataclasses import dataclass

DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("auto", "bfloat16", "float32")
STEP_TOKENS = {"cpu": 2048, "cuda": 32_768}


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """How to run an encoder.

    `step_tokens` bounds the tokens of one step, and with them how long a cancel can take; None
    takes what suits the packaged model on two CPU cores, or on a GPU.
    `name` is what the model is offered as (default: its folder, or the package's model).
    `running_max` bounds the concurrent requests. `threads` None leaves torch's own choice.
    """

    name: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    step_tokens: int | None = None
    running_max: int = 64
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise ValueError(f"device: {self.device!r} is not one of {', '.join(DEVICES)}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype: {self.dtype!r} is not one of {', '.join(DTYPES)}")
        for field in ("step_tokens", "running_max", "threads"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise ValueError(f"{field}: must be at least 1")
