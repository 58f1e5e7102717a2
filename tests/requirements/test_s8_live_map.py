"""S8: a map of what actually runs, drawn from heartbeats: whatever is killed is shown as gone
before its last heartbeat is five seconds old, and is back when it is started again.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from controlplane.embedded import stack
from tests.support.loopback import HOST, reserve_port
from tests.support.product import Child, Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import WAIT_S_MAX, wait_for

pytestmark = pytest.mark.timeout(600)
PLAN = Plan(gateways=2, nodes=1)
# The requirement's own bound, of the age of the last heartbeat.
SHOWN_S_MAX = 5.0


class Map:
    """The map as the API of a running web process tells it."""

    def __init__(self, port: int) -> None:
        self._url = f"http://{HOST}:{port}/api/fleet/map"

    def read(self) -> dict[str, dict[str, Any]]:
        """Parts by kind and name; nothing while the web process does not answer."""
        headers = {"authorization": f"Bearer {settings.OPERATOR_TOKEN}"}
        request = urllib.request.Request(self._url, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S_MAX) as answer:
                parts = json.loads(answer.read())["parts"]
        except OSError:
            return {}
        return {f"{part['kind']} {part['name']}".strip(): part for part in parts}

    def states(self) -> dict[str, str]:
        """The state of each part. None is called live whose last heartbeat is too old for that."""
        parts = self.read()
        for name, part in parts.items():
            old = part["age_s"] is not None and part["age_s"] >= SHOWN_S_MAX
            if old and part["kind"] in ("gateway", "web", "worker", "beat"):
                assert part["state"] == "gone", (name, part)
        return {name: part["state"] for name, part in parts.items()}


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers, PLAN) as product:
        yield product


@pytest.fixture
def jobs(product: Product, tmp_path: Path) -> Iterator[tuple[dict[str, Child], Map]]:
    """Web, worker and beat beside the gateways."""
    port = reserve_port()
    parts = (stack.gateway(HOST, port, role="web", name="web"), stack.worker(), stack.beat())
    children = {
        part.name: Child(part.name, part.argv, part.env, tmp_path / f"{part.name}.log")
        for part in parts
    }
    for child in children.values():
        child.start()
    try:
        yield children, Map(port)
    finally:
        for child in children.values():
            child.stop()
            print(f"--- {child.name}\n{child.log[-6_000:]}")


def test_what_is_killed_is_gone_from_the_map_and_comes_back(
    product: Product, jobs: tuple[dict[str, Child], Map]
) -> None:
    children, drawn = jobs
    node = next(iter(product.nodes))
    gateways = [f"gateway {HOST}:{port}" for port in product.ports]
    wait_for(lambda: _runs(drawn, gateways), "a map of all that runs")
    assert {"postgres", "redis", "clients"} <= drawn.read().keys()
    wait_for(lambda: drawn.read()["postgres"]["connect_ms"] is not None, "what a worker dials")

    node.kill()
    wait_for(lambda: drawn.states()["node node-1"] == "not connected", "the node's end")
    product.gateways[1].kill()
    wait_for(lambda: drawn.states()[gateways[1]] == "gone", "the gateway's end")
    assert drawn.states()[gateways[0]] == "live", "the other goes on"
    for name in ("worker", "beat"):
        children[name].kill()
    wait_for(lambda: _of(drawn, "worker") == _of(drawn, "beat") == {"gone"}, "both ends")

    for child in (node, product.gateways[1], children["worker"], children["beat"]):
        child.start()
    wait_for(lambda: _runs(drawn, gateways), "all to be back")
    # Whoever ends as asked has not been killed, and leaves nothing behind.
    product.gateways[1].stop()
    assert gateways[1] not in drawn.states()


def _runs(drawn: Map, gateways: list[str]) -> bool:
    states = drawn.states()
    served = all(states.get(name) == "live" for name in gateways)
    others = all(_of(drawn, kind) == {"live"} for kind in ("web", "worker", "beat"))
    return served and others and states.get("node node-1") == "ready"


def _of(drawn: Map, kind: str) -> set[str]:
    return {state for name, state in drawn.states().items() if name.split(" ")[0] == kind}
