"""Where and in what precision a model runs: device, kernels, dtype, size of the KV pool."""

import logging
import time
from dataclasses import dataclass

import torch

from inference.compact.config.shape import ModelShape
from inference.compact.native.probe import reason_against
from inference.compact.options import CompactOptions
from inference.errors import ModelError

log = logging.getLogger("inference.compact")

# Rows of a step: a single stream, small batches and a prefill chunk. The probe adds up its times
# per row count, each relative to float32, so that no one of them decides alone.
PROBE_ROWS = (1, 8, 32, 256)
PROBE_REPEATS = 5
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The choice made; names as the node announces them."""

    device: str
    dtype: str
    block_size: int
    kv_blocks: int
    threads: int | None
    kernels: str = "torch"

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]


def choose_placement(shape: ModelShape, options: CompactOptions) -> Placement:
    """Resolve `auto` options; raises `ModelError` where the machine cannot do what was asked."""
    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise ModelError("device: cuda was asked for, but torch sees no CUDA device")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    kernels = _choose_kernels(shape, options, device)
    dtype = options.dtype
    if dtype == "auto":
        narrow = kernels == "native" or device == "cuda" or _bfloat16_pays(shape)
        dtype = "bfloat16" if narrow else "float32"
    item = DTYPES[dtype].itemsize
    token_bytes = shape.layers * 2 * shape.kv_heads * shape.head_dim * item
    kv_blocks = options.kv_blocks or options.kv_bytes // (token_bytes * options.block_size)
    if kv_blocks < 1:
        raise ModelError(f"kv_bytes: {options.kv_bytes} hold not even one block of this model")
    return Placement(
        device=device,
        dtype=dtype,
        block_size=options.block_size,
        kv_blocks=kv_blocks,
        threads=options.threads,
        kernels=kernels,
    )


def _choose_kernels(shape: ModelShape, options: CompactOptions, device: str) -> str:
    """Native code where it can be had; the reason against it is an error only where it was asked
    for, and a warning only on a CPU, where torch is several times slower.
    """
    reason: str | None
    if options.kernels == "torch":
        reason = "torch was asked for"
    elif device != "cpu":
        reason = f"the device is {device}"
    elif options.dtype == "float32":
        reason = "it computes in bfloat16 and float32 was asked for"
    else:
        reason = reason_against(shape, options.block_size)
    if reason is None:
        log.info("steps are computed by native code")
        return "native"
    if options.kernels == "native":
        raise ModelError(f"kernels: native code cannot be used: {reason}")
    if device == "cpu":
        log.warning("steps are computed by torch, not by native code: %s", reason)
    return "torch"


def _bfloat16_pays(shape: ModelShape) -> bool:
    """Time one projection in both dtypes: without bf16 instructions it can be many times slower."""
    ratio = 0.0
    for rows in PROBE_ROWS:
        narrow, wide = (_linear_s(shape, rows, dtype) for dtype in DTYPES.values())
        ratio += narrow / wide
    return ratio < len(PROBE_ROWS)


def _linear_s(shape: ModelShape, rows: int, dtype: torch.dtype) -> float:
    """Best time of one multiplication by a gate-and-up sized matrix, seconds."""
    weight = torch.full((2 * shape.intermediate_size, shape.hidden_size), 0.5, dtype=dtype)
    x = torch.full((rows, shape.hidden_size), 0.5, dtype=dtype)
    times = []
    for _ in range(PROBE_REPEATS):
        started = time.perf_counter()
        torch.nn.functional.linear(x, weight)
        times.append(time.perf_counter() - started)
    return min(times)
