"""One suite for the FleetPort: on PostgreSQL, and in memory as tests of links use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec
import pytest
from django.conf import settings

from controlplane.bridge.fleet.store import FleetStore
from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.models import Node
from controlplane.fleet.services import (
    CreatedCredential,
    node_credential_create,
    node_credential_revoke,
    node_drain,
)
from controlplane.gateway.ports import FleetPort, LedgerAway, NodeIdentity, Orders
from controlplane.kernel.keys.format import NODE_PREFIX, new_credential, parse_credential
from tests.support.fleet import MemoryPort
from tests.support.money import dsn
from tests.support.orm import orm
from tests.support.waiting import until

DRAIN_S = 600


class Registry(Protocol):
    """A port, and what staff do."""

    @property
    def port(self) -> FleetPort: ...

    async def register(self, name: str, models: list[str] | None = None) -> str:
        """A node's credential."""

    async def revoke(self, name: str) -> None:
        """Its credential opens nothing any more."""

    async def drain(self, name: str) -> None:
        """It takes no more jobs."""


class Memory:
    """That of the fake."""

    def __init__(self) -> None:
        self._memory = MemoryPort(identities={})
        self.port: FleetPort = self._memory

    async def register(self, name: str, models: list[str] | None = None) -> str:
        secret = new_credential(NODE_PREFIX).text
        allowed = None if models is None else frozenset(models)
        identity = NodeIdentity(id=f"id of {name}", name=name, models=allowed, pool="default")
        self._memory.identities[secret] = identity
        return secret

    async def revoke(self, name: str) -> None:
        self._memory.revoked.add(f"id of {name}")

    async def drain(self, name: str) -> None:
        self._memory.said[f"id of {name}"] = Orders(standing="draining", drain_s=DRAIN_S)


class Stored:
    """That of PostgreSQL."""

    def __init__(self, store: FleetStore) -> None:
        self.port: FleetPort = store
        self._made: dict[str, CreatedCredential] = {}

    async def register(self, name: str, models: list[str] | None = None) -> str:
        create = orm(node_credential_create)
        made = await create(actor=OPERATOR, name=name, pool="default", models=models)
        self._made[name] = made
        return made.secret

    async def revoke(self, name: str) -> None:
        credential = self._made[name].credential
        await orm(node_credential_revoke)(actor=OPERATOR, credential=credential)

    async def drain(self, name: str) -> None:
        node = await orm(Node.objects.get)(name=name)
        await orm(node_drain)(actor=OPERATOR, node=node, deadline_s=DRAIN_S)


@pytest.fixture
async def registry(kind: str) -> AsyncIterator[Registry]:
    if kind == "memory":
        yield Memory()
        return
    store = FleetStore(dsn(), pepper=settings.KEY_PEPPER)
    store.start()

    async def asked() -> bool:
        try:
            await store.orders([])
        except LedgerAway:
            return False
        return True

    await until(asked)
    yield Stored(store)
    await store.close()


async def known(registry: Registry, name: str, models: list[str] | None = None) -> NodeIdentity:
    found = await registry.port.authenticate(await registry.register(name, models))
    assert found is not None
    return found


async def test_a_credential_names_its_node(registry: Registry) -> None:
    found = await known(registry, "n1", ["m"])
    assert (found.name, found.pool, found.models) == ("n1", "default", frozenset({"m"}))
    assert found.orders == Orders()
    assert (await known(registry, "n2")).models is None


async def test_other_texts_open_nothing(registry: Registry) -> None:
    secret, other = await registry.register("n1"), new_credential(NODE_PREFIX)
    parsed = parse_credential(secret, NODE_PREFIX)
    assert parsed is not None
    mixed = secret.replace(parsed.key_id, other.key_id)
    for wrong in ("", "x", secret[:-1], mixed, other.text, new_credential().text):
        assert await registry.port.authenticate(wrong) is None


async def test_a_revoked_credential_opens_nothing_and_ends_what_it_opened(
    registry: Registry,
) -> None:
    secret = await registry.register("n1")
    first, second = await registry.port.authenticate(secret), await known(registry, "n2")
    assert first is not None
    assert await registry.port.orders([first, second]) == {first: Orders(), second: Orders()}
    await registry.revoke("n1")
    assert await registry.port.authenticate(secret) is None
    told = await registry.port.orders([first, second])
    assert told[first].lapsed and told[second] == Orders()
    assert await registry.port.orders([]) == {}


async def test_what_staff_say_of_a_node_is_told_at_once_and_at_its_next_link(
    registry: Registry,
) -> None:
    secret = await registry.register("n1")
    before = await registry.port.authenticate(secret)
    assert before is not None
    await registry.drain("n1")
    after = await registry.port.authenticate(secret)
    assert after is not None
    for orders in (after.orders, (await registry.port.orders([before]))[before]):
        assert (orders.standing, orders.lapsed) == ("draining", "")
        assert 0 < orders.drain_s <= DRAIN_S
    assert msgspec.structs.replace(after, orders=Orders()) == before


async def test_a_quarantine_is_in_force_as_soon_as_it_is_noted(registry: Registry) -> None:
    found = await known(registry, "n1")
    registry.port.observe(found.id, "quarantined", {"quarantine_s": 300.0, "reason": "lies"})
    assert (await registry.port.orders([found]))[found].quarantined
    registry.port.observe("nobody", "connected", {})


@pytest.mark.parametrize("real", [True, False], ids=["postgresql", "memory"])
async def test_where_nobody_can_tell_it_is_said(real: bool) -> None:
    port: FleetPort = FleetStore("", pepper=b"") if real else MemoryPort(away=True)
    with pytest.raises(LedgerAway):
        await port.authenticate(new_credential(NODE_PREFIX).text)
    with pytest.raises(LedgerAway):
        await port.orders([NodeIdentity(id="i", name="n", models=None)])
