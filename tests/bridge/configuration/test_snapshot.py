"""The configuration as gateways see it: complete, soon, and through a lost database."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.utils import timezone

from controlplane.billing.ledger.accounts import wallet_id
from controlplane.bridge.configuration import snapshot
from controlplane.bridge.configuration.keys import EXPIRED, REVOKED, SnapshotKeys
from controlplane.bridge.configuration.snapshot import SnapshotSource
from controlplane.catalog.selectors import model_find
from controlplane.catalog.services import (
    ModelDraft,
    PriceDraft,
    model_create,
    model_enable,
    price_publish,
)
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.database_roles import conninfo_of
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.snapshot import Limits
from controlplane.kernel.rules import PRIORITY_HIGH, Step, Target
from controlplane.quotas.services import rate_limit_set
from controlplane.tenants.keys import KeyTerms, apikey_create, apikey_revoke, apikey_rotate
from controlplane.tenants.services import project_update, project_weigh
from tests.support.money import add_budget, rows
from tests.support.orm import orm
from tests.support.people import Cast, make_cast
from tests.support.rules import generates, publish
from tests.support.servers import Servers
from tests.support.waiting import until


@pytest.fixture
async def source(database: str) -> AsyncIterator[SnapshotSource]:
    made = SnapshotSource(conninfo_of(settings.DATABASES["gateway"]), salt_secret=b"s" * 32)
    made.start()
    await made.wait_loaded(60)
    yield made
    await made.close()


@orm
def configure() -> tuple[Cast, str]:
    cast = make_cast()
    created = apikey_create(
        actor=cast.alice,
        project=cast.project,
        label="k",
        terms=KeyTerms(models=["m-1"], tags=["batch", "night"], priority=PRIORITY_HIGH),
    )
    project_weigh(actor=OPERATOR, project=cast.project, weight=7)
    project_update(
        actor=cast.alice, project=cast.project, safety_mode="off", allow_content_logging=True
    )
    rate_limit_set(actor=cast.alice, subject=created.key, requests_per_min=60, tokens_per_min=9)
    rate_limit_set(actor=cast.alice, subject=cast.project, requests_per_min=None, tokens_per_min=7)
    draft = ModelDraft(
        name="m-1",
        pool="default",
        context_window=4096,
        output_tokens_default=256,
        output_tokens_max=1024,
    )
    model = model_create(actor=OPERATOR, draft=draft)
    price = PriceDraft(input_pico=150_000, cached_pico=30_000, output_pico=600_000)
    price_publish(actor=OPERATOR, model=model, draft=price)
    publish(generates("r", "m-1"))
    for budget, scope in ((cast.acme.id, "organization"), (created.key.id, "key")):
        add_budget(budget, 10**9, scope=scope, organization=cast.acme.id)
    return cast, created.secret


async def test_everything_arrives(source: SnapshotSource) -> None:
    cast, secret = await configure()
    await until(
        lambda: (
            bool(source.current.rules)
            and [len(key.budgets) for key in source.current.keys.values()] == [2]
            and len(source.current.budgets) == 2
        )
    )
    current = source.current
    (key,) = current.keys.values()
    assert (key.organization, key.project) == (cast.acme.id.hex, cast.project.id.hex)
    assert (key.limits.requests_per_min, key.limits.tokens_per_min) == (60, 9)
    assert key.models == frozenset({"m-1"})
    assert (key.tags, key.priority) == (frozenset({"batch", "night"}), PRIORITY_HIGH)
    assert key.budgets == (key.id, cast.acme.id.hex)
    assert current.budgets == frozenset({cast.acme.id.hex, key.id})
    project, other = (current.projects[p.id.hex] for p in (cast.project, cast.other_project))
    assert (project.limits.tokens_per_min, project.safety) == (7, "off")
    assert (project.weight, project.content) == (7, True)
    assert (other.weight, other.content) == (1, False)
    assert project.salt != other.salt and len(project.salt) == 32
    model = current.models["m-1"]
    assert (model.price.version, model.price.output_pico, model.task) == (1, 600_000, "generate")
    (rule,) = current.rules
    assert (rule.label, rule.match.tasks) == ("r@1", frozenset({"generate"}))
    assert current.candidate is None
    assert rule.steps == (Step(targets=(Target(model="m-1"),)),)
    port = SnapshotKeys(source, pepper=settings.KEY_PEPPER, play_secret=b"")
    assert port.check(secret) == key


async def test_a_revoked_key_is_refused_within_two_seconds_even_without_a_push(
    source: SnapshotSource,
) -> None:
    cast, secret = await configure()
    port = SnapshotKeys(source, pepper=settings.KEY_PEPPER, play_secret=b"")
    await until(lambda: bool(source.current.keys))
    key = (await orm(apikey_create)(actor=cast.bob, project=cast.project, label="x")).key
    await until(lambda: key.key_id in source.current.keys)
    await orm(apikey_revoke)(actor=cast.bob, key=key)
    await until(lambda: source.current.keys[key.key_id].revoked)
    # A change that notifies nobody is found by the poll, a second later.
    assert snapshot.POLL_S <= 1
    await asyncio.to_thread(
        rows,
        "ALTER TABLE api_keys DISABLE TRIGGER api_key_config; UPDATE api_keys SET"
        " revoked_at = now(); UPDATE config_version SET version = version + 1; UPDATE config_marks"
        " SET version = (SELECT version FROM config_version) WHERE kind = 'key'",
    )
    await until(lambda: all(one.revoked for one in source.current.keys.values()))
    with pytest.raises(Refusal, match=REVOKED):
        port.check(secret)


async def test_a_change_reads_what_changed_and_nothing_else(source: SnapshotSource) -> None:
    cast, _ = await configure()
    # A reading may hold newer rows than the number that it was asked for.
    ((newest,),) = await asyncio.to_thread(rows, "SELECT version FROM config_now()")
    await until(lambda: source.current.version == newest)
    before = source.current
    made = (await orm(apikey_create)(actor=cast.bob, project=cast.project, label="x")).key
    await until(lambda: made.key_id in source.current.keys)
    after = source.current
    assert after.version == before.version + 1
    kept = ("projects", "models", "rules", "budgets", "prompts", "organizations", "objectives")
    assert all(getattr(after, name) is getattr(before, name) for name in kept)
    assert all(after.keys[name] is record for name, record in before.keys.items())


async def test_a_budget_of_the_organization_reaches_all_of_its_keys(
    source: SnapshotSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several pages are read, and the last of them is full.
    monkeypatch.setattr(snapshot, "PAGE_ROWS", 2)
    cast = await orm(make_cast)()
    create = orm(apikey_create)
    made = [
        (await create(actor=cast.bob, project=cast.project, label=str(n))).key for n in range(4)
    ]
    await until(lambda: len(source.current.keys) == len(made))
    assert {key.budgets for key in source.current.keys.values()} == {()}
    wallet = wallet_id(cast.acme.id)
    for budget, scope in ((cast.acme.id, "organization"), (cast.project.id, "project")):
        await asyncio.to_thread(add_budget, budget, 9, scope=scope, organization=cast.acme.id)
    await asyncio.to_thread(add_budget, wallet, 9, scope="wallet", organization=cast.acme.id)
    wanted: set[tuple[str, ...]] = {(cast.project.id.hex, cast.acme.id.hex, wallet.hex)}
    await until(lambda: {key.budgets for key in source.current.keys.values()} == wanted)
    assert source.current.budgets == {cast.project.id.hex, cast.acme.id.hex, wallet.hex}
    # The end of a limit reaches them as well.
    await asyncio.to_thread(
        rows, "UPDATE budgets SET lim = 4000000000000000000 WHERE scope = 'organization'"
    )
    wanted = {(cast.project.id.hex, wallet.hex)}
    await until(lambda: {key.budgets for key in source.current.keys.values()} == wanted)
    assert source.current.budgets == {cast.project.id.hex, wallet.hex}


async def test_gateways_forget_keys_an_hour_after_their_end(
    source: SnapshotSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "READ_AGAIN_S", 0.1)
    cast = await orm(make_cast)()
    keys = [
        (await orm(apikey_create)(actor=cast.bob, project=cast.project, label=name)).key
        for name in ("revoked", "expired", "living")
    ]
    await until(lambda: len(source.current.keys) == len(keys))

    def end(ago_s: float) -> None:
        # The clock alone ends them: no change is told of.
        rows("ALTER TABLE api_keys DISABLE TRIGGER USER")
        for key, field in ((keys[0], "revoked_at"), (keys[1], "expires_at")):
            at = f"now() - interval '{ago_s} seconds'"
            rows(f"UPDATE api_keys SET {field} = {at} WHERE id = '{key.id}'")

    await asyncio.to_thread(end, 3_600 - 1)
    await asyncio.sleep(0.3)
    assert len(source.current.keys) == len(keys)
    await until(lambda: set(source.current.keys) == {keys[2].key_id})
    again = SnapshotSource(conninfo_of(settings.DATABASES["gateway"]), salt_secret=b"s" * 32)
    again.start()
    await again.wait_loaded(60)
    await again.close()
    assert set(again.current.keys) == {keys[2].key_id}


async def test_another_database_is_read_whole(
    source: SnapshotSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    await configure()
    await until(lambda: bool(source.current.rules) and len(source.current.budgets) == 2)
    read, served = snapshot._changed, []

    async def changed(*asked: Any) -> dict[str, Any]:
        served.append(source.current)
        return await read(*asked)

    monkeypatch.setattr(snapshot, "_changed", changed)
    before = source.current
    # As one that was restored from an older backup: what it marks, gateways have seen long ago.
    await asyncio.to_thread(
        rows,
        "ALTER TABLE api_keys DISABLE TRIGGER USER; DELETE FROM api_keys;"
        " UPDATE config_version SET version = 1; UPDATE config_marks SET version = 1",
    )
    await until(lambda: source.current.version < 5)
    assert source.current.keys == {} and source.current.rules
    # Until the last page was read, requests found what there was.
    assert served and all(each is before for each in served)


async def test_another_session_reads_everything(source: SnapshotSource) -> None:
    await configure()
    await until(lambda: bool(source.current.keys) and len(source.current.budgets) == 2)
    # A replica that lacked some changes took over, and has made as many others since.
    await asyncio.to_thread(
        rows,
        "ALTER TABLE api_keys DISABLE TRIGGER USER; UPDATE api_keys SET revoked_at = now();"
        " SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'sluice-snapshot' AND datname = current_database()",
    )
    await until(lambda: all(one.revoked for one in source.current.keys.values()))


async def test_expiry_follows_the_databases_clock(
    source: SnapshotSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, secret = await configure()
    await until(lambda: bool(source.current.keys))
    port = SnapshotKeys(source, pepper=settings.KEY_PEPPER, play_secret=b"")
    ((database_s,),) = await asyncio.to_thread(
        rows, "SELECT extract(epoch FROM now())::double precision"
    )
    assert abs(source.now_s - database_s) < 5
    # However wrong this machine's clock is, the key ends when it ends.
    monkeypatch.setattr("controlplane.kernel.clock.time.time", lambda: 0.0)
    await asyncio.to_thread(rows, "UPDATE api_keys SET expires_at = now() - interval '1 second'")
    await until(lambda: _refused(port, secret) == EXPIRED)


def _refused(port: SnapshotKeys, secret: str) -> str:
    try:
        port.check(secret)
    except Refusal as refusal:
        return refusal.message
    return ""


async def test_a_price_comes_into_force_by_the_clock(source: SnapshotSource) -> None:
    @orm
    def publish() -> None:
        model = model_create(
            actor=OPERATOR,
            draft=ModelDraft(
                name="late",
                pool="default",
                context_window=9,
                output_tokens_default=1,
                output_tokens_max=1,
            ),
        )
        draft = PriceDraft(input_pico=1, cached_pico=1, output_pico=3)
        later = timezone.now() + timedelta(hours=1)
        price_publish(actor=OPERATOR, model=model, draft=draft, effective_from=later)

    await publish()
    # Something that comes after it: what was published is read by then.
    await configure()
    await until(lambda: "m-1" in source.current.models)
    assert "late" not in source.current.models
    # The hour passes, and nobody tells of it.
    await asyncio.to_thread(
        rows,
        "ALTER TABLE price_versions DISABLE TRIGGER USER;"
        " UPDATE price_versions SET effective_from = now() WHERE effective_from > now()",
    )
    await until(lambda: "late" in source.current.models)


async def test_a_disabled_model_leaves(source: SnapshotSource) -> None:
    await configure()
    await until(lambda: "m-1" in source.current.models)

    @orm
    def disable() -> None:
        model = model_find(name="m-1")
        assert model is not None
        model_enable(actor=OPERATOR, model=model, enabled=False)

    await disable()
    await until(lambda: "m-1" not in source.current.models)
    assert "m-1" in source.current.model_names


async def test_the_last_snapshot_stays_while_postgresql_is_away(
    source: SnapshotSource, servers: Servers
) -> None:
    cast, _ = await configure()
    await until(lambda: bool(source.current.keys))
    await asyncio.to_thread(servers.postgres.stop)
    try:
        await asyncio.sleep(0.3)
        assert source.current.keys
        assert source.age_s >= 0.3
    finally:
        await asyncio.to_thread(servers.postgres.start)

    @orm
    def change() -> uuid.UUID:
        return apikey_create(actor=cast.alice, project=cast.project, label="new").key.id

    made = await change()
    await until(lambda: made.hex in {key.id for key in source.current.keys.values()}, 5)


async def test_the_gateway_role_may_only_call_functions(database: str) -> None:
    connection = await psycopg.AsyncConnection.connect(
        conninfo_of(settings.DATABASES["gateway"]), autocommit=True
    )
    async with connection:
        for table in ("api_keys", "projects", "users", "nodes", "node_credentials", "models"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await connection.execute(f"SELECT 1 FROM {table}".encode())


@pytest.mark.parametrize(
    ("terms", "endpoints"),
    [
        (KeyTerms(), None),
        (KeyTerms(endpoints=["chat", "key"]), {"chat", "key"}),
        (KeyTerms(read_only=True), {"models", "key"}),
        (KeyTerms(endpoints=["chat", "key"], read_only=True), {"key"}),
        (KeyTerms(endpoints=["chat"], read_only=True), set()),
    ],
)
async def test_what_a_key_may_use_is_worked_out_beforehand(
    source: SnapshotSource, terms: KeyTerms, endpoints: set[str] | None
) -> None:
    cast = await orm(make_cast)()
    make = orm(apikey_create)
    made = await make(actor=cast.alice, project=cast.project, label="k", terms=terms)
    await until(lambda: made.key.key_id in source.current.keys)
    assert source.current.keys[made.key.key_id].endpoints == endpoints


async def test_a_rotated_key_counts_where_the_one_before_counts(source: SnapshotSource) -> None:
    cast = await orm(make_cast)()
    old = (await orm(apikey_create)(actor=cast.bob, project=cast.project, label="k")).key
    await orm(rate_limit_set)(actor=cast.alice, subject=old, concurrency=3, requests_per_day=9)
    await orm(rate_limit_set)(actor=cast.alice, subject=cast.acme, requests_per_min=7)
    await asyncio.to_thread(add_budget, old.id, 10**9, scope="key", organization=cast.acme.id)
    new = (await orm(apikey_rotate)(actor=cast.bob, key=old)).key
    await orm(rate_limit_set)(actor=cast.alice, subject=new, concurrency=2, requests_per_day=9)
    await until(lambda: len(source.current.budgets) == 1)
    # A snapshot may hold the new key and not yet what was set after it.
    wanted = dict.fromkeys((old.key_id, new.key_id), Limits(concurrency=2, requests_per_day=9))
    await until(lambda: {name: key.limits for name, key in source.current.keys.items()} == wanted)
    keys = [source.current.keys[one.key_id] for one in (old, new)]
    assert {key.limits_id for key in keys} == {old.id.hex}
    assert {key.budgets for key in keys} == {(old.id.hex,)}
    assert source.current.organizations == {cast.acme.id.hex: Limits(requests_per_min=7)}
