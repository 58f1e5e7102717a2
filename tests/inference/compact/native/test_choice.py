"""When steps are computed by native code, and what is said where they are not."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference.compact.config.shape import ModelShape, read_shape
from inference.compact.load.placement import Placement, choose_placement
from inference.compact.native import build, choice
from inference.compact.native.build import InstructionSet, instruction_sets, native_library
from inference.compact.native.choice import chosen, reason_against
from inference.compact.options import CompactOptions
from inference.errors import ModelError
from tests.inference.compact.shapes import SHAPES
from tests.inference.compact.test_oracle import SHIPPED
from tests.inference.compact.tiny import save_model

pytestmark = pytest.mark.processes  # A compiler.
BLOCK = 32


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """What a test made of compilers and builds is not for the next."""
    chosen.cache_clear()
    native_library.cache_clear()
    yield
    chosen.cache_clear()
    native_library.cache_clear()


def _choose(shape: ModelShape, **options: Any) -> Placement:
    return choose_placement(shape, CompactOptions(device="cpu", **options))


def test_auto_takes_it_and_bfloat16_with_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="inference.compact"):
        placement = _choose(read_shape(SHIPPED))
    assert (placement.kernels, placement.dtype) == ("native", "bfloat16")
    assert f"steps are computed by native code for {instruction_sets()[0].name}" in caplog.text


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("linux", "riscv64")])
def test_machines_that_it_is_not_written_for(
    system: str, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    reason = reason_against(read_shape(SHIPPED), BLOCK)
    assert reason == "it is written for Linux on x86_64 or aarch64"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dtype": "float32"}, "float32 was asked for"),
        ({"block_size": 16}, "block_size is 16, not 32"),
    ],
)
def test_options_that_it_does_not_fit(
    options: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    shape = read_shape(SHIPPED)
    with caplog.at_level("INFO", logger="inference.compact"):
        assert _choose(shape, **options).kernels == "torch"
    (record,) = [each for each in caplog.records if each.name == "inference.compact"]
    line = record.getMessage()
    assert record.levelname == "WARNING"
    assert line.startswith("steps are computed by torch, not by native code: ")
    assert reason in line
    with pytest.raises(ModelError, match=f"^kernels: native code cannot be used: .*{reason}"):
        _choose(shape, kernels="native", **options)


def test_torch_can_be_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    assert _choose(read_shape(SHIPPED), kernels="torch").kernels == "torch"
    assert "not by native code: torch was asked for" in caplog.text
    with pytest.raises(ValueError, match=r"^kernels: 'fast' is not one of auto, native, torch"):
        CompactOptions(kernels="fast")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"head_dim": 24}, "head_dim is not a multiple of 16"),
        ({"head_dim": 512}, "head_dim is above 256"),
        ({"hidden_size": 48}, "hidden_size is not a multiple of 32"),
        ({"intermediate_size": 100}, "intermediate_size is not a multiple of 16"),
        ({"heads": 130, "kv_heads": 2}, "more than 64 query heads share a key head"),
    ],
)
def test_shapes_that_it_does_not_fit(changes: dict[str, Any], reason: str) -> None:
    assert reason_against(replace(read_shape(SHIPPED), **changes), BLOCK) == reason


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_checkpoints(name: str, tmp_path: Path) -> None:
    kind, overrides = SHAPES[name]
    save_model(tmp_path, kind, **overrides)
    shape = read_shape(tmp_path)
    reason = None
    if shape.experts is not None:
        reason = "the model has experts"
    elif shape.head_dim == 24:
        reason = "head_dim is not a multiple of 16"
    assert reason_against(shape, BLOCK) == reason


def test_without_a_compiler_torch_steps_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build, "PREBUILT", tmp_path)
    with caplog.at_level("INFO", logger="inference.compact"):
        assert _choose(read_shape(SHIPPED)).kernels == "torch"
    (line,) = [each.getMessage() for each in caplog.records if each.name == "inference.compact"]
    assert line.endswith("native code: no C compiler found; install gcc or clang")


def test_a_build_that_computes_something_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is one that the compiler does not know; the next takes its place, with a warning."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    unknown = InstructionSet("unknown", (), ("-mtiles-of-tomorrow",))
    wrong = InstructionSet("wrong", (), ("-Dsqrtf=fabsf",))
    right = instruction_sets()[-1]
    monkeypatch.setattr(choice, "instruction_sets", lambda: [unknown, wrong, right])
    assert chosen() == (right, native_library(right))
    first, second = [each for each in caplog.records if each.levelname == "WARNING"]
    assert first.getMessage().startswith("native code for unknown is not used: ")
    assert "tiles-of-tomorrow" in first.getMessage()
    assert (
        second.getMessage()
        == "native code for wrong is not used: it computes something else than torch"
    )


def test_torch_steps_in_where_no_build_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "agrees", lambda _: False)
    monkeypatch.setattr(choice, "instruction_sets", lambda: instruction_sets()[-1:])
    assert reason_against(read_shape(SHIPPED), BLOCK) == "it computes something else than torch"
