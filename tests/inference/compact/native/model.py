"""A native decoder over a checkpoint, called with hand-made chunks, and the oracle beside it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from inference.compact.batch.tensors import Uploader
from inference.compact.config.shape import read_shape
from inference.compact.layers.decoder import Decoder
from inference.compact.load.placement import choose_placement
from inference.compact.load.weights import Weights, load_weights
from inference.compact.native.build import (
    INSTRUCTION_SETS,
    TILES,
    InstructionSet,
    cpu_flags,
    instruction_sets,
    native_library,
)
from inference.compact.native.choice import chosen
from inference.compact.options import CompactOptions
from inference.compact.run.eager import EagerModel
from inference.compact.run.native import NativeDecoder
from inference.compact.schedule.request import Request, Sequence
from inference.compact.schedule.scheduler import Chunk
from tests.inference.compact.tiny import job_of, save_model

BLOCK = 32
TILES_IN_C = Path(__file__).with_name("tiles.h")


def tried_sets() -> list[InstructionSet]:
    """Those that this machine has, and that with tiles, which a header emulates."""
    (with_tiles,) = (each for each in INSTRUCTION_SETS if TILES in each.needs)
    version = zlib.crc32(TILES_IN_C.read_bytes())
    flags = (*with_tiles.flags, "-include", str(TILES_IN_C), f"-DTILES_VERSION={version}")
    emulated = replace(with_tiles, name=f"{with_tiles.name}-emulated", flags=flags)
    has_rest = cpu_flags().issuperset(each for each in emulated.needs if "amx" not in each)
    return [*instruction_sets(), *([emulated] if has_rest else [])]


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
    **formats: str,
) -> NativeDecoder:
    """A loaded native decoder, by default for the CPU's best instruction set; `formats` are its
    options `quantize` and `kv_dtype`.
    """
    library = native_library(isa) if isa else chosen()[1]
    sizes = {"kv_blocks": kv_blocks, "threads": threads}
    return decoder_of(folder, library, change, **sizes, **formats)


def decoder_of(
    folder: Path, library: Any, change: Callable[[Weights], Weights], **changed: Any
) -> NativeDecoder:
    """The same of a library, or of what stands before one."""
    shape = read_shape(folder)
    options = CompactOptions(device="cpu", kernels="native", block_size=BLOCK, **changed)
    placement = choose_placement(shape, options)
    weights = change(load_weights(folder, shape, placement))
    return NativeDecoder(library, shape, weights, placement)


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
