"""Memory of the native step: in huge pages where there are any; an error where it is short."""

from __future__ import annotations

import mmap

import pytest

from inference.compact.native.packing import map_huge
from inference.errors import ModelError

NO_ADVICE = 9999


def test_a_system_without_huge_pages_gives_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a kernel takes the advice for a wrong argument, as it does this number."""
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", NO_ADVICE)
    memory = map_huge(8192)
    assert bytes(memory[:]) == bytes(8192)


@pytest.mark.parametrize("size", [1 << 50, 1 << 70])
def test_memory_that_is_short_is_said(size: int) -> None:
    with pytest.raises(ModelError, match=f"^kernels: no memory of {size} bytes"):
        map_huge(size)
