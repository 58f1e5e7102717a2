"""The product that the tests of a file break: one for all of them, whole again before each."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from tests.support.servers import Servers

if TYPE_CHECKING:
    from tests.support.product import Product

# pytest reads this file before Django is set up, so what needs models is imported by name, later.
PRODUCT = "tests.support.product"


@pytest.fixture(scope="module")
def running(servers: Servers, request: pytest.FixtureRequest) -> Iterator[Product]:
    """What the file's `PLAN` says."""
    plan = request.module.PLAN
    with import_module(PRODUCT).running_product(servers, plan) as product:
        yield product


@pytest.fixture
def product(running: Product) -> Iterator[Product]:
    """Whatever an earlier test has ended is started again."""
    running.mend()
    yield running
    running.print_logs()
