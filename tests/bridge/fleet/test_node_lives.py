"""Decisions about nodes as gateways hear them: standing, quarantine, digests, and their view."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from controlplane.bridge.configuration.snapshot import SnapshotSource
from controlplane.bridge.fleet.store import FleetStore
from controlplane.catalog.services import ModelDraft, PriceDraft, model_create, price_publish
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.database_roles import conninfo_of
from controlplane.fleet.models import ModelDigest, Node, NodeConnection, NodeStart, NodeStatus
from controlplane.fleet.overview import waiting_by_model, waiting_by_pool, waiting_of
from controlplane.fleet.services import (
    CreatedCredential,
    digest_decide,
    node_allow,
    node_approve,
    node_credential_create,
    node_drain,
    node_forgive,
    node_remove,
    node_undrain,
)
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.ports import NodeIdentity
from inference.contract.codec import decode_from_gateway, encode
from inference.contract.drain import Drain, Undrain
from inference.contract.frames import FromGateway, Report
from tests.support.fleet import make_hello
from tests.support.orm import orm
from tests.support.waiting import until

SEEN_S_MAX = 5.0
MODEL = "tiny"
SMALL = ModelDraft(
    name=MODEL, pool="default", context_window=64, output_tokens_default=8, output_tokens_max=8
)
A, B, C = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture
async def open_store(database: str) -> AsyncIterator[Callable[..., FleetStore]]:
    stores: list[FleetStore] = []

    def make(**options: Any) -> FleetStore:
        conninfo = conninfo_of(settings.DATABASES["gateway"])
        store = FleetStore(conninfo, pepper=settings.KEY_PEPPER, **options)
        store.start()
        stores.append(store)
        return store

    yield make
    for store in stores:
        await store.close()


@orm
def register(name: str = "n1") -> CreatedCredential:
    return node_credential_create(actor=OPERATOR, name=name, pool="default")


@orm
def add_model() -> None:
    model = model_create(actor=OPERATOR, draft=SMALL)
    price = PriceDraft(input_pico=1, cached_pico=1, output_pico=1)
    price_publish(actor=OPERATOR, model=model, draft=price)


async def node(name: str = "n1") -> Node:
    return await orm(Node.objects.get)(name=name)


async def identity_of(store: FleetStore, made: CreatedCredential) -> NodeIdentity:
    found: list[NodeIdentity] = []

    async def seen() -> bool:
        try:
            known = await store.authenticate(made.secret)
        except Exception:
            return False
        if known is not None:
            found.append(known)
        return known is not None

    await until(seen)
    return found[0]


def offer(*digests: str) -> dict[str, object]:
    return {"offers": [{"model": MODEL, "digest": digest} for digest in digests]}


async def digests() -> dict[str, str]:
    rows = orm(lambda: list(ModelDigest.objects.values_list("digest", "state")))
    return dict(await rows())


async def test_standing_reaches_a_gateway_that_is_connected(
    open_store: Callable[..., FleetStore],
) -> None:
    store, made = open_store(), await register()
    identity = await identity_of(store, made)
    fleet = Fleet("g", ticket_keys=(b"k",), on_report=_never, port=store)
    sent: list[FromGateway] = []
    closed: list[int] = []
    link = fleet.connect(
        identity,
        send=lambda data: sent.append(decode_from_gateway(data)),
        close=lambda code, reason: closed.append(code),
    )
    link.on_bytes(encode(make_hello(node="n1")))
    assert link.takes_jobs
    assert await orm(node_drain)(actor=OPERATOR, node=await node(), deadline_s=60)
    await until(lambda: not link.takes_jobs)
    drain = next(frame for frame in sent if isinstance(frame, Drain))
    assert 50 < drain.deadline_s <= 60
    assert await orm(node_undrain)(actor=OPERATOR, node=await node())
    await until(lambda: link.takes_jobs)
    assert any(isinstance(frame, Undrain) for frame in sent)
    assert await orm(node_remove)(actor=OPERATOR, node=await node())
    await until(lambda: closed == [4401])
    assert await store.authenticate(made.secret) is None
    await fleet.close()


async def test_a_waiting_node_takes_no_jobs_until_it_is_approved(
    open_store: Callable[..., FleetStore],
) -> None:
    store, made = open_store(), await register()
    await orm(lambda: Node.objects.update(standing=NodeStatus.PENDING))()
    identity = await identity_of(store, made)
    fleet = Fleet("g", ticket_keys=(b"k",), on_report=_never, port=store)
    link = fleet.connect(identity, send=lambda data: None, close=lambda code, reason: None)
    link.on_bytes(encode(make_hello(node="n1")))
    assert not link.takes_jobs
    assert await orm(node_approve)(actor=OPERATOR, node=await node())
    await until(lambda: link.takes_jobs)
    assert not await orm(node_approve)(actor=OPERATOR, node=await node())
    await fleet.close()


async def test_a_drain_reaches_a_node_that_connects_later(
    open_store: Callable[..., FleetStore],
) -> None:
    store, made = open_store(), await register()
    await orm(node_drain)(actor=OPERATOR, node=await node(), deadline_s=0)
    identity = await identity_of(store, made)
    fleet = Fleet("g", ticket_keys=(b"k",), on_report=_never, port=store)
    sent: list[FromGateway] = []
    link = fleet.connect(
        identity,
        send=lambda data: sent.append(decode_from_gateway(data)),
        close=lambda code, reason: None,
    )
    link.on_bytes(encode(make_hello(node="n1")))
    assert Drain(deadline_s=0.0) in sent and not link.takes_jobs
    await fleet.close()


async def test_a_quarantine_holds_on_every_gateway_until_it_is_lifted(
    open_store: Callable[..., FleetStore],
) -> None:
    here, there, made = open_store(), open_store(), await register()
    identity = await identity_of(there, made)
    id_ = made.credential.node_id.hex
    here.observe(id_, "quarantined", {"reason": "undecodable frame", "quarantine_s": 300.0})

    async def refused() -> bool:
        return (await there.orders([identity]))[identity].quarantined

    assert (await identity_of(here, made)).orders.quarantined, "known here before it is written"
    await until(refused)
    seen = await node()
    assert seen.quarantine_reason == "undecodable frame"
    left = seen.quarantined_until - timezone.now()  # type: ignore[operator]
    assert timedelta(seconds=280) < left <= timedelta(seconds=300)
    assert await orm(node_forgive)(actor=OPERATOR, node=seen)
    assert not (await there.authenticate(made.secret)).orders.quarantined  # type: ignore[union-attr]
    assert not await orm(node_forgive)(actor=OPERATOR, node=await node())


async def test_digests_wait_for_staff_and_the_first_is_trusted_only_where_told(
    open_store: Callable[..., FleetStore],
) -> None:
    await add_model()
    made = await register()
    strict, trusting = open_store(), open_store(trust_first_digest=True)
    id_ = made.credential.node_id.hex
    strict.observe(id_, "connected", offer(A))
    await until(lambda: _is({A: "waiting"}))
    trusting.observe(id_, "connected", offer(B))
    await until(lambda: _is({A: "waiting", B: "waiting"}))
    await orm(lambda: ModelDigest.objects.all()._raw_delete("owner"))()
    trusting.observe(id_, "connected", offer(C))
    await until(lambda: _is({C: "approved"}))
    trusting.observe(id_, "connected", offer(A))
    await until(lambda: _is({C: "approved", A: "waiting"}))


async def _is(wanted: dict[str, str]) -> bool:
    return await digests() == wanted


async def test_a_node_that_waits_is_not_trusted_and_cannot_fill_the_table(
    open_store: Callable[..., FleetStore],
) -> None:
    await add_model()
    made = await register()
    await orm(lambda: Node.objects.update(standing=NodeStatus.PENDING))()
    store = open_store(trust_first_digest=True)
    store.observe(
        made.credential.node_id.hex, "connected", offer(*(f"{n:064x}" for n in range(100)))
    )
    store.observe("n1", "connected", {"offers": [{"model": "foreign", "digest": A}]})
    store.observe("n1", "connected", offer(B))

    async def told() -> bool:
        return bool((await node()).facts.get("offers") == offer(B)["offers"])

    await until(told)
    found = await digests()
    assert set(found.values()) == {"waiting"}
    assert len(found) <= 100 and B not in found
    assert not await orm(ModelDigest.objects.filter(model="foreign").exists)()


async def test_an_approval_reaches_the_configuration(
    open_store: Callable[..., FleetStore],
) -> None:
    await add_model()
    made = await register()
    store = open_store()
    store.observe(made.credential.node_id.hex, "connected", offer(A, B))
    await until(lambda: _is({A: "waiting", B: "waiting"}))
    source = SnapshotSource(conninfo_of(settings.DATABASES["gateway"]), salt_secret=b"s")
    source.start()
    try:
        await source.wait_loaded(SEEN_S_MAX)
        assert source.current.models[MODEL].digests == frozenset()
        row = await orm(ModelDigest.objects.get)(digest=A)
        assert await orm(digest_decide)(actor=OPERATOR, digest=row, approved=True)
        await until(lambda: source.current.models[MODEL].digests == frozenset({A}))
        assert await orm(digest_decide)(actor=OPERATOR, digest=row, approved=False)
        await until(lambda: source.current.models[MODEL].digests == frozenset())
    finally:
        await source.close()


async def test_a_gateway_tells_its_whole_view(open_store: Callable[..., FleetStore]) -> None:
    store, first, second = open_store(), await register("n1"), await register("n2")
    await identity_of(store, first)
    ids = [made.credential.node_id.hex for made in (first, second)]
    await store.links(
        "g1", [{"node": id_, "facts": {"active": 1}} for id_ in ids], {"models": {MODEL: 2}}
    )
    await store.links("g2", [{"node": ids[0], "facts": {"active": 3}}], {})
    await store.links("g1", [{"node": ids[1], "facts": {"active": 2}}], {})
    rows = orm(lambda: sorted(NodeConnection.objects.values_list("node__name", "gateway", "facts")))
    assert await rows() == [("n1", "g2", {"active": 3}), ("n2", "g1", {"active": 2})]
    acme, other = uuid.uuid4(), uuid.uuid4()
    for gateway, waits in (("g1", [3, 250]), ("g2", [1, 700])):
        told = {"models": {MODEL: waits[0]}, "tenants": {acme.hex: waits}}
        told |= {"pools": {"default": waits[0]}, "unmet": [f"missed-at-{gateway}"]}
        await store.links(gateway, [], told)
    assert await orm(waiting_by_model)(timezone.now()) == {MODEL: 4}
    pools = await orm(waiting_by_pool)(timezone.now())
    assert pools == ({"default": 4}, {"missed-at-g1", "missed-at-g2"})
    assert await orm(waiting_of)(acme, timezone.now()) == (4, 0.7)
    assert await orm(waiting_of)(other, timezone.now()) == (0, 0.0)


async def test_each_start_is_kept_once(open_store: Callable[..., FleetStore]) -> None:
    store, made = open_store(), await register()
    for epoch, took in (("e1", 900), ("e1", 900), ("e2", 700), ("e3", 0)):
        facts = {"epoch": epoch, "cold_start_ms": took}
        store.observe(made.credential.node_id.hex, "connected", facts)

        async def written(facts: dict[str, object] = facts) -> bool:
            return bool(facts.items() <= (await node()).facts.items())

        await until(written)
    rows = orm(lambda: sorted(NodeStart.objects.values_list("epoch", "cold_start_ms")))
    assert await rows() == [("e1", 900), ("e2", 700)]


async def test_an_allow_list_makes_the_links_anew(open_store: Callable[..., FleetStore]) -> None:
    store, made = open_store(), await register()
    identity = await identity_of(store, made)
    await orm(node_allow)(actor=OPERATOR, node=await node(), models=["other"])
    assert (await store.orders([identity]))[identity].lapsed
    again = await store.authenticate(made.secret)
    assert again is not None and again.models == frozenset({"other"})


async def _never(report: Report, gateway: str) -> bool:
    raise AssertionError("no report was sent")
