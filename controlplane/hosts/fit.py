"""Whether a model fits: what it needs, what there is, and the place with the most room. Pure.

The estimate comes before the start: weights as their files have them, keys and values for all
sequences at the whole window, and what the process takes besides.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from inference.contract.hosts import ModelSize

GIBIBYTE = 1 << 30
# torch, its kernels and the largest step; on a GPU also the driver's context.
CPU_OVERHEAD = GIBIBYTE
GPU_OVERHEAD = 2 * GIBIBYTE
# Keys and values.
KINDS = 2
SPOTS_TOLD_MAX = 8


@dataclass(frozen=True)
class Shape:
    """How much of a model runs: `sequences` at once, each of up to `window` tokens."""

    window: int
    sequences: int


@dataclass(frozen=True)
class Need:
    """Bytes that one replica takes; `formula` is what its keys and values are made of."""

    weights: int
    kv: int
    overhead: int
    formula: str

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.overhead

    def __str__(self) -> str:
        return (
            f"{gib(self.total)} = weights {gib(self.weights)} + keys and values {gib(self.kv)} "
            f"({self.formula}) + process {gib(self.overhead)}"
        )


@dataclass(frozen=True)
class Spot:
    """Memory that a replica could take: of a host's GPU, or where `gpu` is None of the host.

    `free` is None where the host cannot tell.
    """

    host: str
    gpu: int | None
    free: int | None

    def __str__(self) -> str:
        place = self.host if self.gpu is None else f"{self.host} GPU {self.gpu}"
        return f"{place} {'unknown' if self.free is None else gib(self.free)}"


def need_of(size: ModelSize, shape: Shape, *, gpu: bool) -> Need:
    """What a replica needs on a GPU or on a CPU."""
    factors = (KINDS, size.layers, size.kv_heads, size.head_size, size.kv_value_bytes)
    kv = shape.window * shape.sequences
    for factor in factors:
        kv *= factor
    formula = (
        f"{KINDS} × {size.layers:,} layers × {size.kv_heads:,} heads × {size.head_size:,} × "
        f"{size.kv_value_bytes} bytes × {shape.window:,} tokens × {shape.sequences:,} sequences"
    )
    return Need(size.weights, kv, GPU_OVERHEAD if gpu else CPU_OVERHEAD, formula)


def place(size: ModelSize, shape: Shape, spots: Iterable[Spot]) -> tuple[Spot, Need] | str:
    """The spot where most is left and what is needed there, or the arithmetic of the refusal."""
    found = [(spot, need_of(size, shape, gpu=spot.gpu is not None)) for spot in spots]
    if not found:
        return "No host with an agent that answers may take it."
    fits = [each for each in found if _left(*each) >= 0]
    if fits:
        return max(fits, key=lambda each: _left(*each))
    told = dict.fromkeys(str(need) for _, need in found)
    free = ", ".join(str(spot) for spot, _ in found[:SPOTS_TOLD_MAX])
    return f"It does not fit. Needed: {' or '.join(told)}. Free: {free}."


def gib(size: int) -> str:
    """Bytes as people read them."""
    return f"{size / GIBIBYTE:,.2f} GiB"


def _left(spot: Spot, need: Need) -> int:
    """What stays free; less than nothing where that is not known."""
    return (spot.free or 0) - need.total
