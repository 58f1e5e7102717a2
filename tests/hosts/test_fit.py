"""Where a model fits, by arithmetic alone."""

from __future__ import annotations

from controlplane.hosts.fit import CPU_OVERHEAD, GIBIBYTE, GPU_OVERHEAD, Shape, Spot, need_of, place
from inference.contract.hosts import ModelSize

SIZE = ModelSize(
    weights=14 * GIBIBYTE, layers=32, kv_heads=8, head_size=128, kv_value_bytes=2, window=8192
)
SHAPE = Shape(window=8_192, sequences=8)


def test_the_need_is_weights_and_keys_and_values_and_the_process() -> None:
    need = need_of(SIZE, SHAPE, gpu=True)
    assert need.kv == 2 * 32 * 8 * 128 * 2 * 8_192 * 8 == 8 * GIBIBYTE
    assert need.total == 22 * GIBIBYTE + GPU_OVERHEAD
    assert need_of(SIZE, SHAPE, gpu=False).total == 22 * GIBIBYTE + CPU_OVERHEAD


def test_the_spot_with_the_most_room_is_taken() -> None:
    spots = [Spot("a", 0, 24 * GIBIBYTE), Spot("b", 1, 80 * GIBIBYTE), Spot("c", None, None)]
    found = place(SIZE, SHAPE, spots)
    assert not isinstance(found, str) and found[0] == spots[1]


def test_to_the_byte() -> None:
    whole = need_of(SIZE, SHAPE, gpu=True).total
    assert not isinstance(place(SIZE, SHAPE, [Spot("a", 0, whole)]), str)
    assert isinstance(place(SIZE, SHAPE, [Spot("a", 0, whole - 1)]), str)


def test_the_refusal_has_the_arithmetic() -> None:
    spots = [Spot("a", 0, 10 * GIBIBYTE), Spot("b", None, 5 * GIBIBYTE), Spot("c", None, None)]
    said = place(SIZE, SHAPE, spots)
    parts = "weights 14.00 GiB + keys and values 8.00 GiB (2 × 32 layers × 8 heads × 128 × 2 bytes"
    assert isinstance(said, str)
    assert f"24.00 GiB = {parts}" in said and f"23.00 GiB = {parts}" in said
    assert said.endswith("Free: a GPU 0 10.00 GiB, b 5.00 GiB, c unknown.")


def test_without_hosts_it_says_so() -> None:
    assert place(SIZE, SHAPE, []) == "No host with an agent that answers may take it."
