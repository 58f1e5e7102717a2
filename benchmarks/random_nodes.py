"""The control of `make bench-routing`: the same gateway, but its nodes are drawn at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from controlplane.asgi import application
from controlplane.gateway.nodes.account import Account
from controlplane.gateway.routing.cost import Choice, choose
from controlplane.gateway.s4_route import node

__all__ = ["application"]


def draw(nodes: Sequence[Account], *arguments: Any, **options: Any) -> Choice:
    """Any node that has a credit, whatever it would cost."""
    costs = choose(nodes, *arguments, **options).costs
    roomy = [place for place, each in enumerate(nodes) if each.credits_left > 0]
    return Choice(random.choice(roomy), costs)


patch.object(node, "choose", draw).start()
