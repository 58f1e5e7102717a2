"""What a node says of its ceilings, its shares of them and its kernels: bounded, and optional."""

from __future__ import annotations

import math

import msgspec
import pytest

from controlplane.gateway.nodes.checks import hello_problem, step_problem
from inference.contract.roofline import SLOW_CHARS_MAX, Ceilings, ComputePath, Shares
from tests.support.fleet import make_hello, make_step


@pytest.mark.parametrize("share", [-0.1, 10.1, math.nan, math.inf])
def test_a_share_of_a_ceiling_is_within_its_bound(share: float) -> None:
    step = make_step()
    for shares in (Shares(decode=share), Shares(prefill=share)):
        assert step_problem(msgspec.structs.replace(step, shares=shares)) is not None
    for fine in (None, Shares(), Shares(decode=0.0, prefill=10.0)):
        assert step_problem(msgspec.structs.replace(step, shares=fine)) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("read_bytes_s", 0.0), ("read_bytes_s", math.nan), ("flop_s", math.inf), ("source", "a\0")],
)
def test_a_ceiling_is_a_number_above_zero_with_its_source(field: str, value: object) -> None:
    good = Ceilings(read_bytes_s=1e9, flop_s=1e12, source="torch")
    assert hello_problem(make_hello(ceilings=good)) is None
    bad = msgspec.structs.replace(good, **{field: value})
    problem = hello_problem(make_hello(ceilings=bad))
    assert problem is not None and problem.startswith(f"hello.ceilings.{field}:")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kernels", ""),
        ("kernels", "k" * 101),
        ("kernels", "a\0"),
        ("slow", "a\nb"),
        ("slow", "s" * (SLOW_CHARS_MAX + 1)),
        ("decode_tokens_s", 0.0),
        ("prefill_tokens_s", math.inf),
    ],
)
def test_how_a_node_computes_is_short_text_and_rates(field: str, value: object) -> None:
    good = ComputePath(kernels="torch", slow="s" * SLOW_CHARS_MAX, decode_tokens_s=1.5)
    for fine in (None, good, ComputePath(kernels="native AVX2")):
        assert hello_problem(make_hello(path=fine)) is None
    bad = msgspec.structs.replace(good, **{field: value})
    problem = hello_problem(make_hello(path=bad))
    assert problem is not None and problem.startswith(f"hello.path.{field}:")
