"""Fixtures of a whole gateway: without a node, and with one echo node."""

import pytest

from tests.support.serving import Serving, model, serving, steady

__all__ = ["model", "serving", "steady"]


@pytest.fixture
def bare(steady: Serving) -> Serving:
    """A client of another process starts beside it."""
    return steady
