"""Whether a build computes what torch does: two steps of a tiny model before any of a real one.

A compiler or a CPU may be wrong where no test has run. Takes some milliseconds.
"""

import ctypes
from array import array

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

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
# Largest difference as a share of the largest logit. Seen: 0.5 %.
TOLERANCE = 0.03
SIZES = {
    "embedding": (VOCABULARY, HIDDEN),
    "qkv": (WIDTH + 2 * HEAD_DIM, HIDDEN),
    "bias": (WIDTH + 2 * HEAD_DIM,),
    "out": (HIDDEN, WIDTH),
    "gate_up": (2 * INNER, HIDDEN),
    "down": (HIDDEN, INNER),
    "head": (VOCABULARY, HIDDEN),
}
Weights = dict[str, Tensor]


def agrees(library: ctypes.CDLL) -> bool:
    """Whether all logits are torch's, but for rounding; raises `NativeUnavailable` where the
    library has no room.
    """
    random = torch.Generator().manual_seed(1)
    weights = {name: torch.randn(size, generator=random) for name, size in SIZES.items()}
    weights = {name: (each / each.shape[-1] ** 0.5).bfloat16() for name, each in weights.items()}
    expected = _by_torch({name: each.float() for name, each in weights.items()})
    found = _by_library(library, weights)
    return bool(((found - expected).abs() < TOLERANCE * expected.abs().max()).all())


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


def _by_library(library: ctypes.CDLL, weights: Weights) -> Tensor:
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


def _model(packer: Packer, weights: Weights) -> Model:
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
