"""P11: an alias picks the size class per request, says why, moves retries up, tells what it saved.

Two real gateway processes and three nodes, each with a model of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from django.conf import settings
from django.test import Client

from controlplane.catalog.services import model_create, price_publish
from controlplane.composed.demo import ADMIN_EMAIL, MODEL, POOL, PRICE
from controlplane.core.audit.entries import OPERATOR
from controlplane.embedded import stack
from controlplane.fleet.services import node_credential_create
from controlplane.kernel.receipt import Receipt
from controlplane.routing.services import RuleVersions
from controlplane.tenants.models import User
from tests.product.traffic import open_client
from tests.support.loopback import HOST
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.people import signed_in
from tests.support.product import Child, Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import until

SMALL, MEDIUM, LARGE = "mini", "midi", MODEL.name
MODELS = {"small": SMALL, "medium": MEDIUM, "large": LARGE}
EASY = "What is the capital of Peru?"
HARD = "Why does it deadlock? Debug the race, justify the fix and prove it: n ≥ 1, x ∈ R, √2."
RULE: dict[str, Any] = {
    "name": "auto",
    "match": {"aliases": ["auto"], "tasks": ["generate"]},
    "steps": [
        {"targets": [{"model": model, "size_class": size} for size, model in MODELS.items()]}
    ],
}


@pytest.fixture
def product(servers: Servers, tmp_path: Path) -> Iterator[Product]:
    """Three models, the small ones at a tenth and a hundredth of the price, and a rule for all."""
    with running_product(servers, Plan(gateways=2, started=False)) as product:
        for cheaper, name in ((100, SMALL), (10, MEDIUM)):
            model = model_create(actor=OPERATOR, draft=replace(MODEL, name=name))
            names = ("input_pico", "cached_pico", "output_pico")
            less = {each: getattr(PRICE, each) // cheaper for each in names}
            price_publish(actor=OPERATOR, model=model, draft=replace(PRICE, **less))
            product.nodes.append(_node(product, name, tmp_path))
        publish_now(RULE)
        product.start()
        product.wait_ready()
        yield product


def _node(product: Product, name: str, folder: Path) -> Child:
    made = node_credential_create(actor=OPERATOR, name=f"node-{name}", pool=POOL, models=[name])
    argv = [sys.executable, "-m", "inference", "--name", f"node-{name}", "--engine", "echo"]
    argv += ["--model", str(settings.SHIPPED_MODEL_DIR), "--model-name", name]
    argv += ["--gateway", stack.fleet_url(HOST, product.ports[0])]
    env = {"SLUICE_NODE_CREDENTIAL": made.secret}
    return Child(f"node-{name}", argv, env, folder / f"{name}.log")


@pytest.fixture
async def client(product: Product) -> AsyncIterator[httpx2.AsyncClient]:
    """Of the first gateway."""
    async with of_gateway(product, 0) as made:
        yield made


@asynccontextmanager
async def of_gateway(product: Product, number: int) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of one of them, once that has all models."""
    async with open_client(product.urls[number]) as made:
        made.headers["authorization"] = f"Bearer {product.key}"

        async def known() -> bool:
            models = (await made.get("/v1/models")).json()["data"]
            return {"auto", *MODELS.values()} <= {each["id"] for each in models}

        await until(known)
        yield made


def publish_now(rule: dict[str, Any]) -> None:
    versions = RuleVersions(OPERATOR)
    versions.publish(versions.draft_create([rule]))


async def ask(client: httpx2.AsyncClient, question: str, **more: Any) -> httpx2.Response:
    headers = more.pop("headers", {})
    messages = [{"role": "user", "content": question}]
    body = {"model": "auto", "messages": messages, "max_tokens": 4, **more}
    answer = await client.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer


def served(answer: httpx2.Response) -> tuple[str, str]:
    """The class that the headers name and the model that the body names."""
    assert answer.headers["x-sluice-model"] == answer.json()["model"]
    return answer.headers["x-sluice-size-class"], answer.json()["model"]


@orm
def receipt(answer: httpx2.Response) -> Receipt | None:
    """The receipt that was recorded of it; None until it is."""
    request = answer.headers["x-request-id"].removeprefix("req_")
    found = rows("SELECT receipt FROM request_records WHERE request = %s", request)
    return msgspec.json.decode(bytes(found[0][0]), type=Receipt) if found else None


@orm
def seen(path: str) -> str:
    return signed_in(User.objects.get(email=ADMIN_EMAIL)).get(path).content.decode()


@orm
def sizes() -> dict[str, Any]:
    operator = Client(headers={"authorization": f"Bearer {settings.OPERATOR_TOKEN}"})
    told: dict[str, Any] = json.loads(operator.get("/api/routing/sizes").content)["sizes"]
    return told


async def recorded(answer: httpx2.Response) -> Receipt:
    async def there() -> bool:
        return await receipt(answer) is not None

    await until(there)
    found = await receipt(answer)
    assert found is not None
    return found


async def test_p11_the_class_is_chosen_told_overruled_and_counted(
    product: Product, client: httpx2.AsyncClient
) -> None:
    easy, hard = await ask(client, EASY), await ask(client, HARD)
    assert [served(each) for each in (easy, hard)] == [("small", SMALL), ("large", LARGE)]
    again = await ask(client, EASY)
    assert served(again) == ("medium", MEDIUM)
    named = await ask(client, HARD, size_class="small")
    by_header = await ask(client, HARD, headers={"x-sluice-size-class": "medium"})
    assert [served(each) for each in (named, by_header)] == [("small", SMALL), ("medium", MEDIUM)]
    wrong = {"x-sluice-size-class": "huge"}
    refused = await client.post(
        "/v1/completions", json={"model": "auto", "prompt": "a"}, headers=wrong
    )
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "x-sluice-size-class")
    idle = await ask(client, EASY, model=LARGE, size_class="small")
    assert idle.headers["x-sluice-ignored"] == "size_class"

    kept = [(await recorded(each)).size for each in (easy, again, named, by_header)]
    told = [(each.chosen, each.served, each.by) for each in kept if each is not None]
    assert told == [
        ("small", "small", "classifier"),
        ("small", "medium", "retry"),
        ("large", "small", "request"),
        ("large", "medium", "request"),
    ]
    assert (await recorded(idle)).size is None
    page = await seen(f"/requests/{easy.headers['x-request-id']}")
    assert "short answer asked for" in page
    assert "small, p=0." in page

    report = await sizes()
    (tenant,) = report["organizations"]
    total = report["total"]
    assert (total["requests"], total["retries"], total["named"]) == (5, 1, 2)
    assert total["served"] == tenant["served"] == {"small": 2, "medium": 2, "large": 1}
    assert 0 < total["cost_nano"] < total["largest_nano"]
    assert len(report["us"]) == 3
    assert "Size classes" in await seen("/routing")


async def test_p11_a_thumbs_down_moves_up_the_next_of_its_conversation_at_any_gateway(
    product: Product, client: httpx2.AsyncClient
) -> None:
    async with of_gateway(product, 1) as other:
        first = await ask(client, EASY)
        assert served(first) == ("small", SMALL)
        # A retry that another gateway gets is one, too.
        assert served(await ask(other, EASY)) == ("medium", MEDIUM)

        second = await ask(client, "Name a river of Peru.")
        request = second.headers["x-request-id"]
        path = f"/v1/requests/{request}/feedback"
        body = {"rating": "down", "comment": "Too short."}
        for _ in range(2):
            kept = await client.post(path, json=body)
            assert (kept.status_code, kept.json()["rating"]) == (200, "down"), kept.text
        turns = [
            {"role": "user", "content": "Name a river of Peru."},
            {"role": "assistant", "content": "Rimac."},
        ]
        more = [{"messages": [*turns, {"role": "user", "content": each}]} for each in "abc"]
        moved = await ask(other, "", **more[0])
        assert served(moved) == ("medium", MEDIUM)
        found = (await recorded(moved)).size
        assert found is not None and (found.chosen, found.by) == ("small", "thumbs_down")
        # It was the next, and has been.
        assert served(await ask(other, "", **more[1])) == ("small", SMALL)
        assert (await other.post(path, json={"rating": "up"})).json()["rating"] == "up"
        assert served(await ask(client, "", **more[2])) == ("small", SMALL)
        await client.post(path, json=body)

    page = await seen(f"/requests/{request}")
    assert "thumbs down" in page and "Too short." in page
    rated, all_of_them = await seen("/requests?rating=down"), await seen("/requests")
    assert request in rated and request in all_of_them
    assert first.headers["x-request-id"] not in rated

    total = (await sizes())["total"]
    assert (total["retries"], total["thumbs_down"]) == (1, 1)
    panel = await seen("/routing")
    assert "Moved up by a retry" in panel and "Moved up by a thumbs-down" in panel


async def test_p11_a_shadow_only_records(product: Product, client: httpx2.AsyncClient) -> None:
    await orm(publish_now)({**RULE, "shadow_class": "large"})

    async def shadowed() -> bool:
        return (await ask(client, HARD)).headers["x-sluice-route"] == "auto@2"

    await until(shadowed)
    answer = await ask(client, EASY)
    assert served(answer) == ("large", LARGE)
    found = (await recorded(answer)).size
    assert found is not None
    assert (found.chosen, found.served, found.by) == ("small", "large", "shadow")
    assert (found.model, found.largest) == (SMALL, LARGE)
    total = (await sizes())["total"]
    assert total["shadow"] >= 1
    assert total["chosen_nano"] < total["largest_nano"]
