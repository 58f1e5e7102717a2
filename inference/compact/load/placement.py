"""Where and in what precision a model runs: device, kernels, dtype, size of the KV pool."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from inference.compact.config.shape import ModelShape
from inference.compact.native.choice import chosen, reason_against
from inference.compact.options import FP8, GPU_DEFAULTS, MEBIBYTE, CompactOptions
from inference.errors import ModelError

log = logging.getLogger("inference.compact")

# Rows of a step: a single stream, small batches and a prefill chunk. The probe adds up its times
# per row count, each relative to float32, so that no one of them decides alone.
PROBE_ROWS = (1, 8, 32, 256)
WARM = 1
REPEATS_MAX = 10
# For each of the figures; a repeat that has begun is ended.
SECONDS_MAX = 0.1
# In a round: waiting for a GPU takes about as long as a short launch.
LAUNCHES = {"cpu": 1, "cuda": 10}
CPU_KV_BYTES = 256 * MEBIBYTE
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
# What one key or value in int8 or FP8 has beside its codes; see native/cache.h, attention/cache.py.
SCALE_BYTES = 2
# What converts FP8 and multiplies it in hardware.
FP8_CAPABILITY = (8, 9)


class KvRoom(NamedTuple):
    """What the size of the KV cache follows from: the share of the device's memory that may be in
    use, and tokens and requests of the largest step.
    """

    share: float
    step_tokens: int
    running_max: int


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The choice made; names as the node announces them. `slow`: why a CPU has no native code.

    With `kv_room`, `kv_blocks` is known only once the weights are loaded, and one until then.
    """

    device: str
    dtype: str
    block_size: int
    kv_blocks: int
    threads: int | None
    kernels: str = "torch"
    quantize: str = "off"
    kv_dtype: str = "auto"
    slow: str = ""
    kv_room: KvRoom | None = None

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    def block_bytes(self, shape: ModelShape) -> int:
        """Of the keys and values of one block, all layers."""
        token = layer_token_bytes(shape, self.dtype, self.kv_dtype)
        return shape.layers * token * self.block_size


def defaults_for(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options that suit the device which these choose; raises `ModelError` as `choose_device`."""
    return GPU_DEFAULTS if choose_device(given.get("device", "auto")) == "cuda" else {}


def choose_placement(shape: ModelShape, options: CompactOptions) -> Placement:
    """Resolve `auto` options; raises `ModelError` where the machine cannot do what was asked."""
    device = choose_device(options.device)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    kernels, slow = _choose_kernels(shape, options, device)
    if options.quantize == FP8 and shape.experts is not None:
        raise ModelError("quantize: fp8 is for models without experts")
    if options.kv_dtype == FP8 and device == "cuda":
        check_fp8_cache(*torch.cuda.get_device_capability())
    for option in ("quantize", "kv_dtype"):
        asked = getattr(options, option)
        if asked not in ("off", "auto", FP8) and kernels != "native":
            reason = slow or f"kernels are {options.kernels}, the device is {device}"
            raise ModelError(f"{option}: {asked} needs native code: {reason}")
    dtype = options.dtype
    if dtype == "auto":
        narrow = kernels == "native" or device == "cuda"
        narrow = narrow or bfloat16_pays(shape.hidden_size, 2 * shape.intermediate_size)
        dtype = "bfloat16" if narrow else "float32"
    placement = Placement(
        device=device,
        dtype=dtype,
        block_size=options.block_size,
        kv_blocks=options.kv_blocks or 1,
        threads=options.threads,
        kernels=kernels,
        quantize=options.quantize,
        kv_dtype=options.kv_dtype,
        slow=slow,
    )
    return placement if options.kv_blocks else _sized(placement, shape, options)


def _sized(placement: Placement, shape: ModelShape, options: CompactOptions) -> Placement:
    """With the blocks of `kv_bytes`, or with what they will follow from."""
    kv_bytes = options.kv_bytes
    if kv_bytes is None and placement.device == "cuda":
        room = KvRoom(options.gpu_memory, options.step_tokens, options.running_max)
        return replace(placement, kv_room=room)
    kv_bytes = kv_bytes or CPU_KV_BYTES
    kv_blocks = kv_bytes // placement.block_bytes(shape)
    if kv_blocks < 1:
        raise ModelError(f"kv_bytes: {kv_bytes} hold not even one block of this model")
    return replace(placement, kv_blocks=kv_blocks)


def layer_token_bytes(shape: ModelShape, dtype: str, kv_dtype: str) -> int:
    """Of one token's keys and values in one layer's cache."""
    coded = shape.head_dim + SCALE_BYTES
    head = coded if kv_dtype in ("int8", FP8) else shape.head_dim * DTYPES[dtype].itemsize
    return 2 * shape.kv_heads * head


def check_fp8_cache(major: int, minor: int) -> None:
    """Raise `ModelError` where a GPU of this compute capability cannot read one."""
    if (major, minor) < FP8_CAPABILITY:
        need = ".".join(map(str, FP8_CAPABILITY))
        raise ModelError(
            f"kv_dtype: fp8 needs a GPU of compute capability {need}, this one has {major}.{minor}"
        )


def choose_device(asked: str) -> str:
    """`auto` is a GPU where there is one; raises `ModelError` where there is none to be had."""
    cuda = torch.cuda.is_available()
    if asked == "cuda" and not cuda:
        raise ModelError("device: cuda was asked for, but torch sees no CUDA device")
    return asked if asked != "auto" else "cuda" if cuda else "cpu"


def _choose_kernels(shape: ModelShape, options: CompactOptions, device: str) -> tuple[str, str]:
    """Native code where it can be had; the reason against it is an error only where it was asked
    for, and a warning, which is returned, only on a CPU: torch is several times slower there.
    """
    reasons = {
        "torch was asked for": options.kernels == "torch",
        "fp8 was asked for, which torch computes": options.quantize == FP8,
        "an fp8 cache was asked for, which torch reads": options.kv_dtype == FP8,
        f"the device is {device}": device != "cpu",
        "it computes in bfloat16 and float32 was asked for": options.dtype == "float32",
    }
    reason = next((each for each, holds in reasons.items() if holds), None)
    reason = reason or reason_against(shape, options.block_size)
    if reason is None:
        log.info("steps are computed by native code for %s", chosen()[0].name)
        return "native", ""
    if options.kernels == "native":
        raise ModelError(f"kernels: native code cannot be used: {reason}")
    if device != "cpu":
        return "torch", ""
    log.warning("steps are computed by torch, not by native code: %s", reason)
    return "torch", f"no native code: {reason}"


def bfloat16_pays(inner: int, outer: int, rows: Sequence[int] = PROBE_ROWS) -> bool:
    """Time one projection in both dtypes: without bf16 instructions it can be many times slower."""
    ratio = 0.0
    for count in rows:
        narrow, wide = (_linear_s(count, inner, outer, dtype) for dtype in DTYPES.values())
        ratio += narrow / wide
    return ratio < len(rows)


def _linear_s(rows: int, inner: int, outer: int, dtype: torch.dtype) -> float:
    """Best time of one projection of so many rows from `inner` to `outer` values, seconds."""
    weight = torch.full((outer, inner), 0.5, dtype=dtype)
    x = torch.full((rows, inner), 0.5, dtype=dtype)
    return least_seconds(lambda: torch.nn.functional.linear(x, weight), "cpu")


def least_seconds(run: Callable[[], object], device: str) -> float:
    """Of one run in the best of some rounds, since other work on the machine only adds to it."""
    times: list[float] = []
    launches = LAUNCHES[device]
    began_s = time.perf_counter()
    while len(times) < WARM + REPEATS_MAX:
        started_s = time.perf_counter()
        for _ in range(launches):
            run()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - started_s) / launches)
        if len(times) > WARM and time.perf_counter() - began_s > SECONDS_MAX:
            break
    return min(times[WARM:])
