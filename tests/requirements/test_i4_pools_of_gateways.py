"""I4, a fleet in parts: gateways that take some pools, and a proxy that finds the right one.

Two real gateways of which the node's own dials the wrong one first, and nginx with the lines that
`docs/deployment.md` gives.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx2
import pytest

from controlplane.composed.demo import MODEL, POOL
from tests.product.traffic import make_body
from tests.requirements.test_s6_proxies import nginx
from tests.support.loopback import HOST, reserve_port
from tests.support.product import Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import until, wait_for

ELSEWHERE = "elsewhere"
DOCS = Path(__file__).parents[2] / "docs" / "deployment.md"
BODY = make_body(tokens=2, stream=False)


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex((HOST, port)) == 0


def _pools(number: int) -> dict[str, str]:
    return {"SLUICE_POOLS": (ELSEWHERE, POOL)[number]}


@pytest.fixture(scope="module")
def product(servers: Servers) -> Iterator[Product]:
    plan = Plan(gateways=2, seeds=1, started=False, gateway_env=_pools)
    with running_product(servers, plan) as product:
        product.start()
        wait_for(lambda: product.readiness(1).get("models"), "the node at the gateway of its pool")
        yield product


async def test_a_node_serves_the_gateways_of_its_pool_alone(product: Product) -> None:
    assert product.readiness(0)["nodes"] == 0
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {product.key}"}) as client:
        wrong, right = [
            await client.post(f"{url}/v1/completions", json=BODY) for url in product.urls
        ]
    error = wrong.json()["error"]
    assert (wrong.status_code, error["code"]) == (421, "pool_elsewhere")
    assert MODEL.name in error["message"] and right.status_code == 200
    log = product.nodes[0].log
    assert "takes no nodes of" in log


async def test_the_proxy_of_the_docs_asks_the_next_group(product: Product, tmp_path: Path) -> None:
    (locations,) = re.findall(r"```nginx\n(.+?)```", DOCS.read_text(), re.S)
    port, (first, other) = reserve_port(), product.ports
    text = f"""
        events {{ }}
        http {{
            upstream chat_gateways {{ server {HOST}:{first}; }}
            upstream other_gateways {{ server {HOST}:{other}; }}
            server {{ listen {HOST}:{port}; {locations} }}
        }}
    """
    async with (
        nginx(text, tmp_path),
        httpx2.AsyncClient(headers={"authorization": f"Bearer {product.key}"}) as client,
    ):
        url = f"http://{HOST}:{port}/v1/completions"

        await until(partial(_listens, port))
        answer = await client.post(url, json=BODY)
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] == 2
