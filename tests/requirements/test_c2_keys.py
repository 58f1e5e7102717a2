"""C2: keys shown once, hashed, scoped, rotated with an overlap, revoked at once."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import httpx2
import pytest

from controlplane.composed.demo import MODEL
from controlplane.composed.keys.services import KeyOrder, key_make
from controlplane.core.audit.entries import OPERATOR
from controlplane.quotas.services import LimitSet
from controlplane.tenants.keys import CreatedKey, KeyTerms, apikey_rotate
from controlplane.tenants.models import Project
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.people import demo_admin
from tests.support.product import Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import until

SECRET = re.compile(r"sk_sluice_\w{12}_\w{43}_\w{6}")
NO_LIMITS = LimitSet()


@pytest.fixture(scope="module")
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

    await until(both_serve)
    await orm(_revoke)(old_id)
    await until(old_is_refused)
    assert (await _ask(product, new)).whole


async def test_a_key_opens_only_the_models_it_was_made_for(product: Product) -> None:
    key = await orm(_make)(KeyTerms())

    async def served() -> bool:
        return (await _ask(product, key.secret)).whole

    await until(served)
    rows("UPDATE api_keys SET allowed_models = '{another-model}' WHERE id = %s", key.key.id)

    async def refused() -> bool:
        return (await _ask(product, key.secret)).error.get("code") == "model_not_allowed"

    await until(refused)


def _make(terms: KeyTerms, limits: LimitSet = NO_LIMITS) -> CreatedKey:
    ((project, organization),) = rows("SELECT id, organization_id FROM projects")
    of = Project(id=project, organization_id=organization)
    order = KeyOrder("scoped", terms, limits=limits)
    return key_make(actor=OPERATOR, project=of, order=order)


async def _show(product: Product, secret: str, **headers: str) -> httpx2.Response:
    async with open_client(product.urls[0]) as client:
        bearer = {"authorization": f"Bearer {secret}", **headers}
        return await client.get("/v1/key", headers=bearer)


async def test_scopes_hold_at_the_gateway_and_are_told_to_the_keys_holder(
    product: Product,
) -> None:
    terms = KeyTerms(models=[MODEL.name], endpoints=["chat", "key"], networks=["127.0.0.0/8"])
    key = await orm(_make)(terms, LimitSet(requests_per_day=9, concurrency=2))

    async def known() -> bool:
        return (await _show(product, key.secret)).status_code == 200

    await until(known)
    told = (await _show(product, key.secret)).json()["data"]
    assert told["scopes"]["endpoints"] == ["chat", "key"]
    assert told["scopes"]["networks"] == ["127.0.0.0/8"]
    own = {(one["dimension"], one["remaining"]) for one in told["limits"] if one["scope"] == "key"}
    assert own == {("requests-day", 9), ("concurrency", 2)}
    assert (await _ask(product, key.secret)).error["code"] == "endpoint_not_allowed"
    rows("UPDATE api_keys SET networks = '{203.0.113.0/24}' WHERE id = %s", key.key.id)

    async def shut_out() -> bool:
        answer = await _show(product, key.secret, **{"x-forwarded-for": "203.0.113.7"})
        return answer.status_code == 403 and answer.json()["error"]["code"] == "ip_not_allowed"

    await until(shut_out)


async def test_rotation_lets_both_keys_work_on_one_limit_until_the_old_one_ends(
    product: Product,
) -> None:
    old = await orm(_make)(KeyTerms(), LimitSet(requests_per_day=4))
    new = await orm(apikey_rotate)(actor=OPERATOR, key=old.key, overlap_s=86_400)

    async def both_known() -> bool:
        answers = [await _show(product, one.secret) for one in (old, new)]
        return all(answer.status_code == 200 for answer in answers)

    await until(both_known)
    answers = [await _ask(product, one.secret) for one in (old, new, old, new, old, new)]
    assert [answer.status for answer in answers] == [200] * 4 + [429] * 2
    assert answers[-1].error["type"] == "requests"
    assert "4 requests per day for this key" in answers[-1].error["message"]
    rows("UPDATE api_keys SET expires_at = now() WHERE id = %s", old.key.id)

    async def only_the_new_one() -> bool:
        answers = [await _show(product, one.secret) for one in (old, new)]
        return [answer.status_code for answer in answers] == [401, 200]

    await until(only_the_new_one)
