"""C1: people come in by invitation, do what their role allows, and are out at once; all audited."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from controlplane.core.permissions import Role
from controlplane.tenants.models import User
from tests.frontend.people.test_members import invite
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.people import demo_admin, signed_in
from tests.support.product import Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import until

PASSWORD = "correct-horse-battery-staple"
# What each role finds open and closed, by page.
OPEN = {
    Role.DEVELOPER: {"/": 200, "/keys": 200, "/members": 403},
    Role.FINANCE: {"/": 200, "/keys": 403, "/members": 403},
    Role.VIEWER: {"/": 200, "/keys": 403, "/members": 403},
    Role.ADMIN: {"/": 200, "/keys": 200, "/members": 200},
}


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers) as product:
        yield product


def _joined(role: Role) -> Client:
    """A new person, in by the link that the page shows."""
    path = invite(demo_admin(), f"{role.value}@example.org", role)
    client = Client()
    answer = client.post(path, {"password": PASSWORD, "again": PASSWORD})
    assert answer.status_code == 302
    assert Client().get(path).status_code == 410
    return client


def _statuses(role: Role) -> dict[str, int]:
    client = _joined(role)
    return {path: client.get(path).status_code for path in OPEN[role]}


def _play_token(client: Client) -> str:
    ((project,),) = rows("SELECT id FROM projects")
    return str(client.post("/playground/token", {"project": project}).json()["token"])


def _remove(email: str) -> None:
    user = User.objects.get(email=email)
    assert demo_admin().post(f"/members/{user.id.hex}/remove").status_code == 200


async def _ask(product: Product, token: str) -> Answer:
    async with open_client(product.urls[0]) as client:
        return await ask(client, token, make_body(stream=False))


async def test_people_come_do_and_go(product: Product) -> None:
    for role, expected in OPEN.items():
        assert await orm(_statuses)(role) == expected
    bob = await orm(_joined_again)("developer@example.org")
    token = await orm(_play_token)(bob)
    assert (await _ask(product, token)).whole
    await orm(_remove)("developer@example.org")
    assert (await orm(bob.get)("/keys")).status_code == 403

    async def refused() -> bool:
        return (await _ask(product, token)).error.get("code") == "invalid_api_key"

    await until(refused)
    told = {action for (action,) in rows("SELECT DISTINCT action FROM audit_entries")}
    assert told >= {"invitation.create", "invitation.accept", "user.create", "membership.end"}


def _joined_again(email: str) -> Client:
    return signed_in(User.objects.get(email=email))
