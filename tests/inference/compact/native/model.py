"""A native decoder over a checkpoint, called with hand-made chunks, and the oracle beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from inference.compact.batch.tensors import Uploader
from inference.compact.config.shape import read_shape
from inference.compact.layers.decoder import Decoder
from inference.compact.load.placement import choose_placement
from inference.compact.load.weights import Weights, load_weights
from inference.compact.native.build import InstructionSet, native_library
from inference.compact.options import CompactOptions
from inference.compact.run.eager import EagerModel
from inference.compact.run.native import NativeDecoder
from inference.compact.schedule.request import Request, Sequence
from inference.compact.schedule.scheduler import Chunk
from tests.inference.compact.tiny import job_of, save_model

BLOCK = 32


def save_rounded(folder: Path, kind: str = "llama", **overrides: Any) -> Any:
    """A tiny checkpoint, and an oracle in float32 over the same weights rounded to bfloat16, so
    that only the arithmetic differs.
    """
    oracle: Any = save_model(folder, kind, **overrides)
    return oracle.bfloat16().float()


def native_of(
    folder: Path,
    isa: InstructionSet | None = None,
    change: Callable[[Weights], Weights] = lambda weights: weights,
    *,
    kv_blocks: int = 64,
    threads: int = 2,
    quantize: str = "off",
    kv_dtype: str = "auto",
) -> NativeDecoder:
    """A loaded native decoder, by default for the CPU's best instruction set."""
    shape = read_shape(folder)
    options = CompactOptions(
        device="cpu",
        kernels="native",
        kv_blocks=kv_blocks,
        threads=threads,
        block_size=BLOCK,
        quantize=quantize,
        kv_dtype=kv_dtype,
    )
    placement = choose_placement(shape, options)
    weights = change(load_weights(folder, shape, placement))
    return NativeDecoder(native_library(isa), shape, weights, placement)


def eager_logits(folder: Path, tokens: list[int]) -> Tensor:
    """What torch makes of every token in bfloat16."""
    shape = read_shape(folder)
    options = CompactOptions(device="cpu", kernels="torch", dtype="bfloat16", kv_blocks=8)
    placement = choose_placement(shape, options)
    with torch.inference_mode():
        decoder = Decoder(shape, load_weights(folder, shape, placement), placement)
        eager = EagerModel(decoder, Uploader("cpu"))
        count = len(tokens)
        return eager.forward([Chunk(sequence_of(tokens, [1, 2, 3]), 0, count, count)])


def sequence_of(tokens: list[int], blocks: list[int]) -> Sequence:
    """A sequence that holds these blocks."""
    request = Request(job_of(tokens), block_size=BLOCK, received_us=0, seed=0)
    (sequence,) = request.sequences
    sequence.blocks = blocks
    return sequence


def all_logits(
    native: NativeDecoder, tokens: list[int], blocks: list[int], cuts: list[int]
) -> Tensor:
    """Logits of every token, computed in chunks of these sizes."""
    sequence = sequence_of(tokens, blocks)
    parts, start = [], 0
    for count in cuts:
        parts.append(native.forward([Chunk(sequence, start, count, count)]).clone())
        start += count
    assert start == len(tokens)
    return torch.cat(parts)
