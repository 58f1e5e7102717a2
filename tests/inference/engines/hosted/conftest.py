"""A provider that a test plays by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.upstream import HandUpstream, hand_upstream


@pytest.fixture
async def upstream() -> AsyncIterator[HandUpstream]:
    """Its answers are the test's."""
    async with hand_upstream() as server:
        yield server
