"""I7: kernels made for the hardware are used where it has them; doing without is a warning."""

from __future__ import annotations

import pytest

from inference.compact.config.shape import read_shape
from inference.compact.load.placement import choose_placement
from inference.compact.native.choice import reason_against
from inference.compact.options import CompactOptions
from tests.support.shipped import SHIPPED

BLOCK_SIZE = 32


@pytest.mark.processes
def test_what_the_hardware_has_is_used(caplog: pytest.LogCaptureFixture) -> None:
    shape = read_shape(SHIPPED)
    reason = reason_against(shape, BLOCK_SIZE)
    placement = choose_placement(shape, CompactOptions(device="cpu"))
    assert placement.kernels == ("native" if reason is None else "torch")
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(warnings) == (reason is not None)
    assert all(str(reason) in each for each in warnings)


def test_switching_them_off_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    choose_placement(read_shape(SHIPPED), CompactOptions(device="cpu", kernels="torch"))
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warning == "steps are computed by torch, not by native code: torch was asked for"
