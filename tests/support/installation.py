"""A gateway process that serves pages, too, and more nodes beside those of the plan; and how
clients, staff and browsers ask it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
from django.conf import settings
from prometheus_client.parser import text_string_to_metric_families

from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.catalog.services import ModelDraft, PriceDraft, model_create, price_publish
from controlplane.composed.demo import MODEL, PRICE
from controlplane.core.audit.entries import OPERATOR
from controlplane.embedded.stack import fleet_url
from controlplane.fleet.services import node_credential_create
from controlplane.kernel.ids import public_id
from tests.support.hosts import Staff
from tests.support.loopback import HOST
from tests.support.people import demo_admin
from tests.support.product import Child, Plan, Product, demo_key, running_product
from tests.support.servers import Servers

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ANSWER_S_MAX = 60.0


@contextmanager
def installation(servers: Servers, plan: Plan) -> Iterator[Product]:
    """Not started yet: nodes may be added before."""
    pages = {"SLUICE_ROLE": "all"}
    plan = replace(plan, started=False, gateway_env=lambda _: pages)
    with running_product(servers, plan) as product:
        yield product


def add_node(
    product: Product,
    folder: Path,
    model: ModelDraft,
    *options: str,
    price: PriceDraft = PRICE,
    **environment: str,
) -> None:
    """A node with the name of its model, which is new, as is its pool; its log is in the folder."""
    pool_set(actor=OPERATOR, draft=PoolDraft(name=model.pool, task=model.task))
    price_publish(actor=OPERATOR, model=model_create(actor=OPERATOR, draft=model), draft=price)
    made = node_credential_create(
        actor=OPERATOR, name=model.name, pool=model.pool, models=[model.name]
    )
    argv = [sys.executable, "-m", "inference", "--name", model.name, "--pool", model.pool]
    argv += [*options, "--gateway", fleet_url(HOST, product.ports[0])]
    env = {"SLUICE_NODE_CREDENTIAL": made.secret, **environment}
    product.nodes.append(Child(model.name, argv, env, folder / f"{model.name}.log"))


def post(product: Product, path: str, **body: Any) -> httpx2.Response:
    """What a client gets for a body."""
    headers = {"authorization": f"Bearer {product.key}"}
    url = product.urls[0] + path
    return httpx2.post(url, json=body, headers=headers, timeout=ANSWER_S_MAX, trust_env=False)


def say(product: Product, text: str, **fields: Any) -> httpx2.Response:
    """A chat of one turn, greedy."""
    turn = [{"role": "user", "content": text}]
    usual = {"model": MODEL.name, "max_tokens": 8, "temperature": 0}
    return post(product, CHAT, messages=turn, **{**usual, **fields})


def request_of(answer: httpx2.Response) -> str:
    return answer.headers["x-request-id"].removeprefix("req_")


def organization() -> str:
    """The demo's, as the API names it."""
    return public_id("org", demo_key().organization_id)


def operate(product: Product, method: str, path: str, body: object = None) -> Any:
    """The answer of an operation by staff that succeeds."""
    status, told = Staff(product.urls[0])(method, path, body)
    assert status < 300, told
    return told


def got(product: Product, path: str, **more: Any) -> httpx2.Response:
    """What stands at a path of the first gateway."""
    url = product.urls[0] + path
    return httpx2.get(url, timeout=ANSWER_S_MAX, trust_env=False, **more)


def page_of(product: Product, path: str) -> httpx2.Response:
    """A page as the browser of the demo's admin gets it."""
    name = settings.SESSION_COOKIE_NAME
    cookies = {name: demo_admin().cookies[name].value}
    return got(product, path, cookies=cookies)


def scraped(product: Product, sample: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels, as Prometheus reads them."""
    token = {"authorization": f"Bearer {settings.METRICS_TOKEN}"}
    answer = got(product, "/metrics", headers=token)
    assert answer.status_code == 200, answer.text
    return sum(
        one.value
        for family in text_string_to_metric_families(answer.text)
        for one in family.samples
        if one.name == sample and labels.items() <= one.labels.items()
    )
