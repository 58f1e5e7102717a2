"""Whether a build computes what torch does: two steps of a tiny model before any of a real one.

A compiler or a CPU may be wrong where no test has run. Takes some milliseconds.
"""

import ctypes
from array import array
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from inference.compact.grouped import Grouped, dense
from inference.compact.native.build import NativeUnavailable
from inference.compact.native.library import Layer, Model, Step
from inference.compact.native.packing import BLOCK, Packer

# With these, loops over rows, outputs, k and blocks all end in a rest.
HIDDEN, INNER, HEADS, HEAD_DIM, VOCABULARY = 96, 48, 2, 48, 70
WIDTH = HEADS * HEAD_DIM
TOKENS = 38
# The last is decoded in a step of its own.
SPANS = ((0, TOKENS - 1), (TOKENS - 1, TOKENS))
BLOCKS = 2
EPS = 1e-5
# Largest difference as a share of the largest logit. Seen: 0.6 %, of quantized weights 2.4 %.
TOLERANCE = 0.05
SIZES = {
    "embedding": (VOCABULARY, HIDDEN),
    "qkv": (WIDTH + 2 * HEAD_DIM, HIDDEN),
    "bias": (WIDTH + 2 * HEAD_DIM,),
    "out": (HIDDEN, WIDTH),
    "gate_up": (2 * INNER, HIDDEN),
    "down": (HIDDEN, INNER),
    "head": (VOCABULARY, HIDDEN),
}
# These have whole groups of inputs, so that they can be quantized, too.
COARSE = ("qkv", "out", "gate_up", "head")
COARSE_BITS = (4, 8)
Weights = dict[str, Tensor]


def agrees(library: ctypes.CDLL) -> bool:
    """Whether all logits are torch's, but for rounding; raises `NativeUnavailable` where the
    library has no room.
    """
    random = torch.Generator().manual_seed(1)
    weights = {name: torch.randn(size, generator=random) for name, size in SIZES.items()}
    weights = {name: (each / each.shape[-1] ** 0.5).bfloat16() for name, each in weights.items()}
    stored: list[Mapping[str, Tensor | Grouped]] = [weights]
    for bits in COARSE_BITS:
        stored.append(weights | {name: _coarse(SIZES[name], bits, random) for name in COARSE})
    for each in stored:
        expected = _by_torch({name: dense(one).float() for name, one in each.items()})
        found = _by_library(library, each)
        if not ((found - expected).abs() < TOLERANCE * expected.abs().max()).all():
            return False
    return True


def _coarse(size: tuple[int, ...], bits: int, random: torch.Generator) -> Grouped:
    """Random codes in groups of 32, with values as large as those of the other weights."""
    outputs, k = size
    codes = torch.randint(256, (outputs, k * bits // 8), dtype=torch.uint8, generator=random)
    scales = torch.randn(outputs, k // 32, generator=random) * 3 / 2**bits / k**0.5
    return Grouped(codes, scales, scales * -(2 ** (bits - 1)), bits)


def _by_torch(weights: Weights) -> Tensor:
    """Logits `[TOKENS, VOCABULARY]` of the tokens 0, 1, 2 and so on; no positions, two heads that
    share one key head.
    """

    def normed(x: Tensor) -> Tensor:
        return rms_norm(x, (HIDDEN,), eps=EPS)

    x = weights["embedding"][:TOKENS]
    heads = linear(normed(x), weights["qkv"], weights["bias"]).view(TOKENS, -1, HEAD_DIM)
    heads = heads.transpose(0, 1)
    query, key, value = heads[:HEADS], heads[HEADS], heads[HEADS + 1]
    key, value = key.expand_as(query), value.expand_as(query)
    attended = scaled_dot_product_attention(query, key, value, is_causal=True)
    x = x + linear(attended.transpose(0, 1).flatten(1), weights["out"])
    gate, up = linear(normed(x), weights["gate_up"]).chunk(2, -1)
    x = x + linear(silu(gate) * up, weights["down"])
    return linear(normed(x), weights["head"])


def _by_library(library: ctypes.CDLL, weights: Mapping[str, Any]) -> Tensor:
    packer = Packer()
    model = _model(packer, weights)
    logits = torch.full((TOKENS, VOCABULARY), torch.nan)
    engine = library.sluice_open(model, 1, 0)
    try:
        if not engine or any(_step(library, engine, logits, *span) for span in SPANS):
            raise NativeUnavailable("no room for its trial")
    finally:
        if engine:
            library.sluice_close(engine)
    return logits


def _step(library: ctypes.CDLL, engine: int, logits: Tensor, start: int, end: int) -> bool:
    """Compute the tokens from `start` to `end`; whether it failed."""
    count = end - start
    lists = (range(start, end), range(BLOCKS), range(count), (0, count, start, 0))
    arrays = [array("i", each) for each in lists]
    step = Step(*(each.buffer_info()[0] for each in arrays), logits[start:].data_ptr())
    step.rows, step.chunk_count, step.sampled_count, step.threads = count, 1, count, 1
    return bool(library.sluice_step(engine, step))


def _model(packer: Packer, weights: Mapping[str, Any]) -> Model:
    ones = packer.keep(torch.ones(HIDDEN))
    layer = Layer(
        input_norm=ones,
        mlp_norm=ones,
        qkv=packer.linear(weights["qkv"], weights["bias"]),
        out=packer.linear(weights["out"]),
        gate_up=packer.gated(weights["gate_up"]),
        down=packer.linear(weights["down"]),
    )
    cache = torch.zeros(BLOCKS * 2 * BLOCK * HEAD_DIM, dtype=torch.bfloat16)
    return Model(
        embedding=packer.keep(weights["embedding"]),
        norm=ones,
        layers=(Layer * 1)(layer),
        cache=packer.keep(cache),
        head=packer.linear(weights["head"]),
        blocks=BLOCKS,
        hidden=HIDDEN,
        inner=INNER,
        heads=HEADS,
        kv_heads=1,
        head_dim=HEAD_DIM,
        depth=1,
        norm_eps=EPS,
    )
