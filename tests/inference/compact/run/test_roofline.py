"""Roofline use: work is counted as the model does it, and ceilings are those of this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from inference.compact.config.shape import ModelShape, read_shape
from inference.compact.load.placement import Placement
from inference.compact.load.weights import load_weights
from inference.compact.options import MEBIBYTE
from inference.compact.run.ceilings import measure_ceilings
from inference.compact.run.roofline import WINDOW_US, Roofline, Work
from inference.compact.schedule.request import Request
from inference.compact.schedule.scheduler import Chunk
from inference.contract.roofline import SHARE_MAX, Ceilings
from tests.inference.compact.tiny import job_of, prompt_of, save_model

MIXED = (None, 21, None)
CEILINGS = Ceilings(read_bytes_s=1e9, flop_s=1e12, source="a test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("roofline")
    save_model(made)
    return made


@pytest.fixture(scope="module")
def shape(folder: Path) -> ModelShape:
    return read_shape(folder)


def chunk(start: int, count: int, sampled_rows: int) -> Chunk:
    request = Request(job_of(prompt_of(start + count)), block_size=16, received_us=0, seed=1)
    return Chunk(request.sequences[0], start, count, sampled_rows)


def test_the_bytes_of_a_step_are_those_of_the_weights_that_it_multiplies_with(
    folder: Path, shape: ModelShape
) -> None:
    placement = Placement(device="cpu", dtype="float32", block_size=16, kv_blocks=8, threads=None)
    weights = load_weights(folder, shape, placement)
    read = [weights.head]
    for layer in weights.layers:
        read += [each.weight for each in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    assert Work(shape, 4).weight_bytes == sum(each.nbytes for each in read)


def test_keys_and_values_are_read_as_far_as_each_layer_sees(shape: ModelShape) -> None:
    windows = tuple(MIXED[layer % len(MIXED)] for layer in range(shape.layers))
    work = Work(replace(shape, windows=windows), 2)
    lengths = [3, 20, 21, 22, 90]
    seen = sum(min(length, window or length) for window in windows for length in lengths)
    cached = work.step_bytes(lengths) - work.weight_bytes
    assert cached == seen * 2 * shape.kv_heads * shape.head_dim * 2


@pytest.mark.parametrize("start", [0, 5, 20, 21, 40])
@pytest.mark.parametrize("count", [1, 2, 17, 30])
def test_attention_counts_each_token_and_what_it_sees(
    shape: ModelShape, start: int, count: int
) -> None:
    windows = tuple(MIXED[layer % len(MIXED)] for layer in range(shape.layers))
    work = Work(replace(shape, windows=windows), 2)
    pairs = sum(
        min(place + 1, window or place + 1)
        for window in windows
        for place in range(start, start + count)
    )
    head = 2 * shape.vocab_size * shape.hidden_size
    flop = work.prefill_flop(count, start=start, sampled_rows=1)
    expected = 2 * work.matrix_parameters * count + 4 * shape.heads * shape.head_dim * pairs + head
    assert flop == expected


def test_decoding_is_of_bandwidth_prefill_and_both_together_of_compute(shape: ModelShape) -> None:
    work = Work(shape, 2)
    roofline = Roofline(work, CEILINGS)
    assert (roofline.shares.decode, roofline.shares.prefill) == (None, None)
    roofline.note([], 500)
    decodes = [chunk(30, 1, 1), chunk(7, 1, 1)]
    roofline.note(decodes, 1_000)
    shares = roofline.shares
    assert shares.prefill is None
    assert shares.decode == pytest.approx(work.step_bytes([31, 8]) / 1e6)
    roofline.note([decodes[0], chunk(0, 40, 0)], 1_000)
    assert roofline.shares.decode == shares.decode
    flop = work.prefill_flop(1, start=30, sampled_rows=1) + work.prefill_flop(40)
    assert roofline.shares.prefill == pytest.approx(flop / 1e9)


def test_what_was_long_ago_fades_and_a_ceiling_that_is_far_too_low_is_bounded(
    shape: ModelShape,
) -> None:
    work = Work(shape, 2)
    roofline = Roofline(work, CEILINGS)
    needed_us = work.step_bytes([31]) // 1_000
    roofline.note([chunk(30, 1, 1)], max(1, needed_us // 1_000))
    assert roofline.shares.decode == SHARE_MAX
    for _ in range(10):
        roofline.note([chunk(30, 1, 1)], int(WINDOW_US))
    slow = work.step_bytes([31]) / 1e3 / WINDOW_US
    assert roofline.shares.decode == pytest.approx(slow, rel=0.01)


def test_ceilings_are_measured_on_this_machine_and_once() -> None:
    found = measure_ceilings("cpu", 16 * MEBIBYTE)
    assert found.read_bytes_s > 0 and found.flop_s > 0
    assert "16 MiB" in found.source and len(found.source) <= 100
    assert measure_ceilings("cpu", 16 * MEBIBYTE) is found
