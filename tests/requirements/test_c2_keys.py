"""C2, what is there of it: keys shown once, hashed, scoped, overlapping, revoked at once."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest

from controlplane.blueprint.demo import MODEL
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.money import rows
from tests.support.orm import orm, until
from tests.support.people import demo_admin
from tests.support.product import Product, running_product
from tests.support.servers import Servers

SECRET = re.compile(r"sk_sluice_\w{12}_\w{43}_\w{6}")
REVOKED_S_MAX = 2.0
KNOWN_S_MAX = 3.0


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers) as product:
        yield product


def _create(label: str, models: list[str]) -> tuple[str, str]:
    """By the form on the page: the secret and the id of the key."""
    client, ((project,),) = demo_admin(), rows("SELECT id FROM projects")
    form = {"form_id": uuid.uuid4().hex, "label": label, "project": project, "lifetime": "30"}
    page = client.post("/keys/create", {**form, "models": models}).content.decode()
    (secret,) = set(SECRET.findall(page))
    assert secret not in client.get("/keys").content.decode()
    ((key,),) = rows("SELECT id FROM api_keys WHERE label = %s", label)
    return secret, key.hex


def _revoke(key: str) -> None:
    demo_admin().post(f"/keys/{key}/revoke", {"reason": "rotated"})


async def _ask(product: Product, secret: str) -> Answer:
    async with open_client(product.urls[0]) as client:
        return await ask(client, secret, make_body(stream=False))


async def test_a_key_is_made_rotated_and_revoked(product: Product) -> None:
    old, old_id = await orm(_create)("old", [MODEL.name])
    new, _ = await orm(_create)("new", [])
    stored = str(rows("SELECT k::text FROM api_keys k"))
    assert old not in stored and old.encode().hex() not in stored

    async def both_serve() -> bool:
        return all([(await _ask(product, secret)).whole for secret in (old, new)])

    async def old_is_refused() -> bool:
        return (await _ask(product, old)).error.get("code") == "invalid_api_key"

    await until(both_serve, KNOWN_S_MAX)
    await orm(_revoke)(old_id)
    await until(old_is_refused, REVOKED_S_MAX)
    assert (await _ask(product, new)).whole


async def test_a_key_opens_only_the_models_it_was_made_for(product: Product) -> None:
    rows("UPDATE api_keys SET allowed_models = '{another-model}'")

    async def refused() -> bool:
        return (await _ask(product, product.key)).error.get("code") == "model_not_allowed"

    await until(refused, KNOWN_S_MAX)
