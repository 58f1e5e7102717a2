"""A node that computes the shipped model: for tests of what a gateway makes of real answers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from inference.compact.options import CompactOptions
from inference.engines.compact import CompactEngine
from tests.support.fleet import MODEL, running_node
from tests.support.gateway import GatewayUnderTest
from tests.support.shipped import SHIPPED


@contextlib.asynccontextmanager
async def shipped_node(under_test: GatewayUnderTest, folder: Path = SHIPPED) -> AsyncIterator[None]:
    """Ready at this gateway, on one CPU thread; nothing of it may stay open."""
    options = CompactOptions(name=MODEL, device="cpu", dtype="float32", threads=1)
    async with running_node(CompactEngine(folder, options), under_test.fleet_url, folder):
        await under_test.served()
        yield
        await under_test.at_rest()
