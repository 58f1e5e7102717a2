"""Pools: bounds, the warm schedule by the clock, and who may say what runs on a host."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.management import CommandError, call_command

from controlplane.catalog.models import CARD_HOUR_MICRO_MAX, Pool
from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.catalog.selectors import pool_find, pool_list
from controlplane.catalog.services import ModelDraft, model_create
from controlplane.catalog.warm import WINDOWS_MAX, nodes_min_at, windows_from
from controlplane.core.audit.entries import OPERATOR
from controlplane.routing.rulesjson import read_rules
from controlplane.routing.selectors import rule_problems
from tests.support.money import rows
from tests.support.people import make_cast
from tests.support.rules import generates

SMALL = ModelDraft(
    name="m", pool="default", context_window=64, output_tokens_default=8, output_tokens_max=8
)
OFFICE = {"days": ["mon", "fri"], "from": "08:00", "to": "18:00", "nodes_min": 3}
NIGHT = {"days": ["fri"], "from": "22:00", "to": "02:00", "nodes_min": 2}


def at(text: str) -> datetime:
    """A moment in UTC; 2026-11-20 is a Friday."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("window", "moment", "least"),
    [
        (OFFICE, "2026-11-20 07:59:59", 1),
        (OFFICE, "2026-11-20 08:00:00", 3),
        (OFFICE, "2026-11-20 18:00:00", 1),
        (OFFICE, "2026-11-19 12:00:00", 1),
        (NIGHT, "2026-11-20 23:00:00", 2),
        (NIGHT, "2026-11-21 01:59:00", 2),
        (NIGHT, "2026-11-21 02:00:00", 1),
        (NIGHT, "2026-11-20 01:00:00", 1),
        ({**OFFICE, "timezone": "Asia/Tokyo"}, "2026-11-19 23:30:00", 3),
        ({**OFFICE, "timezone": "Asia/Tokyo"}, "2026-11-20 09:30:00", 1),
    ],
)
def test_a_window_holds_in_its_own_zone(window: dict[str, Any], moment: str, least: int) -> None:
    assert nodes_min_at(1, windows_from([window]), at(moment)) == least


@pytest.mark.parametrize(
    ("stored", "named"),
    [
        ({}, "array"),
        ([{**OFFICE, "days": []}], "days"),
        ([{**OFFICE, "days": ["someday"]}], "days"),
        ([{**OFFICE, "from": "8:00"}], "from"),
        ([{**OFFICE, "nodes_min": -1}], "nodes_min"),
        ([{**OFFICE, "timezone": "Mars/Base"}], "timezone"),
        ([{**OFFICE, "nodes": 2}], "nodes"),
        ([OFFICE] * (WINDOWS_MAX + 1), str(WINDOWS_MAX)),
    ],
)
def test_a_wrong_schedule_says_what_is_wrong(stored: object, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        windows_from(stored)


@pytest.mark.usefixtures("database")
def test_a_fresh_installation_has_the_pool_that_commands_default_to() -> None:
    assert [(pool.name, pool.task) for pool in pool_list()] == [("default", "generate")]


@pytest.mark.usefixtures("database")
def test_a_pool_is_made_changed_and_audited() -> None:
    stella = make_cast().stella
    pool_set(actor=stella, draft=PoolDraft(name="gold", nodes_max=4, warm_schedule=[OFFICE]))
    pool_set(actor=stella, draft=PoolDraft(name="gold", nodes_min=2, nodes_max=4))
    pool = pool_find(name="gold")
    assert pool is not None
    assert (pool.nodes_min, pool.nodes_max, pool.warm_schedule) == (2, 4, [])
    audited = rows("SELECT actor_label FROM audit_entries WHERE action = 'pool.set'")
    assert audited == [(stella.email,)] * 2


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": "No Pool"}, "name"),
        ({"task": "guess"}, "task"),
        ({"role": "idle"}, "role"),
        ({"nodes_min": 2}, "nodes_max"),
        ({"card_hour_micro": CARD_HOUR_MICRO_MAX + 1}, "card_hour_micro"),
        ({"cards_per_node": 0}, "cards_per_node"),
        ({"warm_schedule": [OFFICE]}, "nodes_max"),
        ({"warm_schedule": [{}]}, "warm_schedule"),
        ({"start_command": "python 'open"}, "start_command"),
        ({"name": "default", "task": "embed"}, "task"),
    ],
)
def test_a_wrong_pool_names_its_field(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        pool_set(actor=OPERATOR, draft=PoolDraft(**{"name": "gold", **wrong}))
    assert field in caught.value.message_dict
    assert Pool.objects.count() == 1


@pytest.mark.usefixtures("database")
def test_only_the_operator_says_what_runs_on_a_host() -> None:
    cast = make_cast()
    with pytest.raises(PermissionDenied):
        pool_set(actor=cast.alice, draft=PoolDraft(name="gold"))
    with pytest.raises(PermissionDenied):
        pool_set(actor=cast.stella, draft=PoolDraft(name="gold", start_command="rm -r /"))
    pool_set(actor=OPERATOR, draft=PoolDraft(name="gold", start_command="node"))
    kept = PoolDraft(name="gold", start_command="node", nodes_max=2)
    assert pool_set(actor=cast.stella, draft=kept).nodes_max == 2


@pytest.mark.usefixtures("database")
def test_no_whole_request_goes_to_nodes_that_only_prefill() -> None:
    pool_set(actor=OPERATOR, draft=PoolDraft(name="first", role="prefill"))
    with pytest.raises(ValidationError, match="only runs prefill"):
        model_create(actor=OPERATOR, draft=replace(SMALL, pool="first"))
    assert rule_problems(
        actor=OPERATOR,
        rules=read_rules([generates("a", SMALL.name) | {"steps": [{"targets": [
            {"model": SMALL.name, "pool": "first"}]}]}]),
    )  # fmt: skip
    model_create(actor=OPERATOR, draft=SMALL)
    with pytest.raises(ValidationError) as caught:
        pool_set(actor=OPERATOR, draft=PoolDraft(name=SMALL.pool, role="prefill"))
    assert caught.value.message_dict == {
        "role": [f"The model {SMALL.name!r} is served from this pool."]
    }


@pytest.mark.usefixtures("database")
def test_a_pool_in_use_is_known_to_the_database_itself() -> None:
    model_create(actor=OPERATOR, draft=SMALL)
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        rows("UPDATE models SET pool = 'gold'")


@pytest.mark.usefixtures("database")
def test_the_command_keeps_what_it_does_not_say() -> None:
    out = StringIO()
    call_command("pool_set", "gold", "--max=3", "--start-command=node --x", stdout=out)
    call_command("pool_set", "gold", "--separate-caches", stdout=out)
    call_command("pool_set", "gold", "--min=1", stdout=out)
    assert Pool.objects.get(name="gold").separate_caches
    call_command("pool_set", "gold", "--no-separate-caches", stdout=out)
    pool = pool_find(name="gold")
    assert pool is not None
    assert (pool.nodes_min, pool.nodes_max, pool.start_command) == (1, 3, "node --x")
    with pytest.raises(CommandError, match="--min, --max|--max"):
        call_command("pool_set", "gold", "--min=9", stdout=out)
    with pytest.raises(CommandError, match="--warm-schedule"):
        call_command("pool_set", "gold", "--warm-schedule=[", stdout=out)
