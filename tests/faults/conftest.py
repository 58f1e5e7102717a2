"""The product that a fault test breaks: one gateway and one paced node unless it asks for more."""

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
TOKENS_PER_S = 100.0


@pytest.fixture
def product(servers: Servers, request: pytest.FixtureRequest) -> Iterator[Product]:
    """Another plan is given by `@pytest.mark.parametrize("product", [Plan(…)], indirect=True)`."""
    parts = import_module(PRODUCT)
    plan = getattr(request, "param", None) or parts.Plan(tokens_per_s=TOKENS_PER_S)
    with parts.running_product(servers, plan) as product:
        yield product
