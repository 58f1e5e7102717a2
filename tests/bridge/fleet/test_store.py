"""The Fleet port: credentials checked in PostgreSQL, observations written without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from django.conf import settings

from controlplane.bridge.fleet import store as module
from controlplane.bridge.fleet.store import (
    CHANGED,
    HANDSHAKES_A_QUERY,
    NODES_PENDING_MAX,
    REVOKED,
    FleetStore,
)
from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.database_roles import conninfo_of
from controlplane.fleet.models import Node
from controlplane.fleet.services import (
    CreatedCredential,
    node_credential_create,
    node_credential_revoke,
)
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.ports import LedgerAway, Orders
from controlplane.kernel.keys.format import NODE_PREFIX, new_credential
from inference.contract.codec import encode
from inference.contract.frames import Report
from tests.support.fleet import make_hello
from tests.support.orm import orm
from tests.support.servers import Servers
from tests.support.waiting import until

SEEN_S_MAX = 5.0


@pytest.fixture
async def store(database: str) -> AsyncIterator[FleetStore]:
    made = FleetStore(conninfo_of(settings.DATABASES["gateway"]), pepper=settings.KEY_PEPPER)
    made.start()
    await connected(made)
    yield made
    await made.close()


async def connected(store: FleetStore) -> None:
    async with asyncio.timeout(SEEN_S_MAX):
        while True:
            try:
                await store.authenticate(new_credential(NODE_PREFIX).text)
            except LedgerAway:
                await asyncio.sleep(0.02)
            else:
                return


@orm
def register(models: list[str] | None = None) -> CreatedCredential:
    return node_credential_create(actor=OPERATOR, name="n1", pool="default", models=models)


async def state_becomes(state: str) -> Node:
    find = orm(Node.objects.get)

    async def seen() -> bool:
        return (await find(name="n1")).state == state

    await until(seen)
    return await find(name="n1")


async def test_a_flood_of_unknown_credentials_keeps_no_node_waiting(
    store: FleetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await register()
    queries: list[int] = []
    asked = store._valid

    async def counted(key_ids: list[str]) -> object:
        queries.append(len(key_ids))
        return await asked(key_ids)

    monkeypatch.setattr(store, "_valid", counted)
    unknown = [new_credential(NODE_PREFIX).text for _ in range(1_200)]
    flood = [asyncio.create_task(store.authenticate(each)) for each in unknown]
    known = [asyncio.create_task(store.authenticate(made.secret)) for _ in range(2)]
    # One that hangs up takes nothing with it.
    await asyncio.sleep(0)
    flood.pop().cancel()
    assert set(await asyncio.gather(*flood)) == {None}
    assert all([await each for each in known])
    assert len(queries) <= 4 and max(queries) == HANDSHAKES_A_QUERY
    monkeypatch.setattr(module, "HANDSHAKES_MAX", 0)
    with pytest.raises(LedgerAway):
        await store.authenticate(made.secret)


async def test_a_handshake_ends_whatever_fails(
    store: FleetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, begun = await register(), asyncio.Event()

    async def broken(key_ids: list[str]) -> object:
        raise RuntimeError(key_ids)

    async def hanging(key_ids: list[str]) -> object:
        begun.set()
        return await asyncio.Event().wait()

    async with asyncio.timeout(SEEN_S_MAX):
        with monkeypatch.context() as patch, pytest.raises(LedgerAway):
            patch.setattr(store, "_valid", broken)
            await store.authenticate(made.secret)
        assert await store.authenticate(made.secret) is not None
        monkeypatch.setattr(store, "_valid", hanging)
        asked = asyncio.create_task(store.authenticate(made.secret))
        await begun.wait()
        later = asyncio.create_task(store.authenticate(new_credential(NODE_PREFIX).text))
        await asyncio.sleep(0)
        await store.close()
        found = await asyncio.gather(asked, later, return_exceptions=True)
    assert [type(each) for each in found] == [LedgerAway, LedgerAway]


async def test_credentials_that_are_revoked_or_say_other_things_lapse(store: FleetStore) -> None:
    made, other = await register(["m"]), await register()
    identities = [await store.authenticate(each.secret) for each in (made, other)]
    first, second = [each for each in identities if each is not None]
    assert await store.orders([first, second]) == {first: Orders(), second: Orders()}
    assert await store.orders([]) == {}
    await orm(node_credential_revoke)(actor=OPERATOR, credential=made.credential)
    told = await store.orders([first, second])
    assert told == {first: Orders(lapsed=REVOKED), second: Orders()}
    await orm(pool_set)(actor=OPERATOR, draft=PoolDraft(name="another"))
    another = PoolDraft(name="default", separate_caches=True)
    await orm(pool_set)(actor=OPERATOR, draft=another)
    assert await store.orders([second]) == {second: Orders(separate_caches=True)}
    moved = orm(node_credential_create)
    await moved(actor=OPERATOR, name="n1", pool="another")
    assert await store.orders([second]) == {second: Orders(lapsed=CHANGED)}


async def test_a_node_does_not_choose_the_pool_that_it_is_registered_in(store: FleetStore) -> None:
    made = await register()
    store.observe(made.credential.node_id.hex, "connected", {"pool": "gold"})
    seen = await state_becomes("connected")
    assert seen.pool == "default"


async def test_a_revoked_credential_cuts_the_live_link(store: FleetStore) -> None:
    made = await register()
    fleet = Fleet("g", ticket_keys=(b"k",), on_report=_never, port=store)
    identity = await store.authenticate(made.secret)
    assert identity is not None
    closed: list[tuple[int, str]] = []
    link = fleet.connect(
        identity, send=lambda data: None, close=lambda code, reason: closed.append((code, reason))
    )
    link.on_bytes(encode(make_hello(node="n1")))
    await asyncio.sleep(1.2)
    assert closed == []
    await orm(node_credential_revoke)(actor=OPERATOR, credential=made.credential)
    await until(lambda: bool(closed))
    assert closed == [(4401, REVOKED)]
    assert fleet.nodes() == {}
    await fleet.close()


async def _never(report: Report, gateway: str) -> bool:
    raise AssertionError("no report was sent")


async def test_observations_are_written_merged_and_newest_last(store: FleetStore) -> None:
    made = await register()
    node = made.credential.node_id.hex
    store.observe(node, "connected", {"engine": "compact", "region": "eu-1"})
    store.observe("n1", "draining", {"credits": 4})
    seen = await state_becomes("draining")
    assert seen.facts == {"engine": "compact", "region": "eu-1", "credits": 4}
    assert seen.region == "eu-1"
    assert seen.last_seen_at is not None


async def test_nonsense_is_refused_and_stops_nothing(store: FleetStore) -> None:
    await register()
    store.observe("n1", "on fire", {})
    store.observe("nobody", "connected", {})
    await asyncio.sleep(0.1)
    store.observe("n1", "connected", {"x": "\x00"})
    store.observe("n1", "connected", {"x": "y"})
    assert (await state_becomes("connected")).facts == {"x": "y"}


async def test_postgresql_away_is_said_and_nothing_noted_is_lost(
    store: FleetStore, servers: Servers
) -> None:
    made = await register()
    await asyncio.to_thread(servers.postgres.stop)
    try:
        with pytest.raises(LedgerAway):
            await store.authenticate(made.secret)
        store.observe("n1", "connected", {})
    finally:
        await asyncio.to_thread(servers.postgres.start)
    await state_becomes("connected")
    assert await store.authenticate(made.secret) is not None


async def test_the_queue_is_bounded() -> None:
    store = FleetStore("", pepper=b"")
    for number in range(NODES_PENDING_MAX + 5):
        store.observe(f"n{number}", "connected", {})
    store.observe("n0", "draining", {})
    assert store.dropped == 5
