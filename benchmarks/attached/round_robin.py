"""The control of `make bench-attached`: the same gateway, but its nodes take turns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from controlplane.asgi import application
from controlplane.gateway.nodes.measured.account import NodeAccount
from controlplane.gateway.s4_route import node
from controlplane.gateway.s4_route.choice.cost import NodeChoice, choose

__all__ = ["application"]

_turns = itertools.count()


def take_turns(nodes: Sequence[NodeAccount], *arguments: Any, **options: Any) -> NodeChoice:
    """The next node that has a credit, whatever it would cost."""
    costs = choose(nodes, *arguments, **options).costs
    roomy = [place for place, each in enumerate(nodes) if each.credits_left > 0]
    return NodeChoice(roomy[next(_turns) % len(roomy)], costs)


patch.object(node, "choose", take_turns).start()
