"""The control of `make bench-routing`: the same gateway, but its nodes are drawn at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from controlplane.asgi import application
from controlplane.gateway.nodes.measured.account import NodeAccount
from controlplane.gateway.s4_route import node
from controlplane.gateway.s4_route.choice.cost import NodeChoice, choose

__all__ = ["application"]


def draw(nodes: Sequence[NodeAccount], *arguments: Any, **options: Any) -> NodeChoice:
    """Any node that has a credit, whatever it would cost."""
    costs = choose(nodes, *arguments, **options).costs
    roomy = [place for place, each in enumerate(nodes) if each.credits_left > 0]
    return NodeChoice(random.choice(roomy), costs)


patch.object(node, "choose", draw).start()
