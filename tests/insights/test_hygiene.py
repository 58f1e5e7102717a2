"""Waste by key: counted by gateways' port, written whole again and again, read scaled and named."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controlplane.bridge.record import hygiene as port_module
from controlplane.bridge.record.hygiene import PostgresHygiene
from controlplane.gateway.ports import Inspected
from controlplane.insights import hygiene
from controlplane.insights.hygiene import hygiene_forget
from controlplane.kernel.insights.hygiene import DEAD_JSON, KINDS, NOT_STREAMED, RETRY, WasteFinding
from controlplane.tenants.keys import apikey_create
from tests.support.money import dsn, rows
from tests.support.orm import orm
from tests.support.people import Cast, make_cast, signed_in
from tests.support.waiting import until

HERE = "/api/insights/organizations/{}/hygiene"


@pytest.fixture
async def port(database: str) -> AsyncIterator[PostgresHygiene]:
    made = PostgresHygiene(dsn())
    made.start()
    yield made
    await made.close()


def seen(cast: Cast | None = None, key: uuid.UUID | None = None, **changes: Any) -> Inspected:
    """A served request of 100 tokens for 1,000 nano-USD."""
    fields: dict[str, Any] = {
        "organization": cast.acme.id.hex if cast else "a" * 32,
        "project": cast.project.id.hex if cast else "b" * 32,
        "key": key.hex if key else "c" * 32,
        "client": "openai-node",
        "model": 'odd "name", {really}',
        "tokens": 100,
        "nano": 1_000,
        "looked": True,
        "findings": (),
    }
    return Inspected(**{**fields, **changes})


def counted() -> dict[str, tuple[int, int, int]]:
    """All by kind: an hour may turn meanwhile."""
    found = rows(
        "SELECT kind, sum(requests)::bigint, sum(tokens)::bigint, sum(nano)::bigint"
        " FROM hygiene_hours GROUP BY kind"
    )
    return {kind: (requests, tokens, nano) for kind, requests, tokens, nano in found}


async def test_counts_grow_and_are_written_whole(port: PostgresHygiene) -> None:
    port.count(seen(findings=(WasteFinding(DEAD_JSON, 7, 70),)))
    assert await port.flush()
    port.count(seen(findings=(WasteFinding(DEAD_JSON, 3, 30), WasteFinding(RETRY, 100, 1_000))))
    port.count(seen(looked=False))
    assert await port.flush()
    assert counted() == {
        "looked": (2, 200, 2_000),
        "left_out": (1, 100, 1_000),
        DEAD_JSON: (2, 10, 100),
        RETRY: (1, 100, 1_000),
    }


async def test_every_kind_of_finding_can_be_written(port: PostgresHygiene) -> None:
    port.count(seen(findings=tuple(WasteFinding(kind, 1, 1) for kind in KINDS)))
    assert await port.flush()
    assert set(counted()) == {"looked", *KINDS} and port.refused == 0


async def test_a_gateway_keeps_a_bounded_number_of_rows(
    port: PostgresHygiene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_module, "ROWS_MAX", 3)
    for number in range(5):
        port.count(seen(model=f"model-{number}"))
    assert port.refused == 2
    assert await port.flush()
    assert len(rows("SELECT 1 FROM hygiene_hours")) == 3


async def test_what_the_database_refuses_is_counted_and_not_repeated(
    port: PostgresHygiene,
) -> None:
    port.count(seen(findings=(WasteFinding("of no known kind", 1, 1),)))
    assert await port.flush()
    await until(lambda: port.refused >= 1)


async def test_old_counts_are_forgotten(port: PostgresHygiene) -> None:
    port.count(seen())
    assert await port.flush()
    forget = orm(hygiene_forget)
    assert await forget(datetime.now(UTC) + timedelta(days=89)) == 0
    assert await forget(datetime.now(UTC) + timedelta(days=91)) == 1


async def test_no_backlog_is_too_long_for_one_run(
    port: PostgresHygiene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hygiene, "ROWS_DELETED_MAX", 2)
    for number in range(7):
        port.count(seen(model=f"model-{number}"))
    assert await port.flush()
    forget, later = orm(hygiene_forget), datetime.now(UTC) + timedelta(days=91)
    with monkeypatch.context() as patch:
        # A run has a bound, and what is left is the next one's.
        patch.setattr(hygiene, "BITES_MAX", 2)
        assert await forget(later) == 4
    assert await forget(later) == 3
    assert counted() == {}


async def test_fixes_are_told_for_the_client_that_needs_them_most(port: PostgresHygiene) -> None:
    cast = await orm(make_cast)()
    key = await orm(apikey_create)(actor=cast.alice, project=cast.project, label="nightly")
    for client, count in (("openai-python", 3), ("langchain", 5), ("other", 2)):
        for _ in range(count):
            finding = WasteFinding(NOT_STREAMED, 100, 0)
            port.count(seen(cast, key.key.id, client=client, findings=(finding,)))
    assert await port.flush()
    answer = await orm(lambda: signed_in(cast.alice).get(HERE.format(cast.acme.id)))()
    (one,) = answer.json()["keys"]
    (found,) = one["findings"]
    assert (one["requests"], found["requests"], found["tokens"]) == (10, 10, 1_000)
    assert found["client"] == "langchain" and "ChatOpenAI" in found["code"]


async def test_the_api_names_keys_scales_and_shows_only_ones_own(port: PostgresHygiene) -> None:
    cast = await orm(make_cast)()
    key = await orm(apikey_create)(actor=cast.alice, project=cast.project, label="nightly")
    for _ in range(2):
        port.count(seen(cast, key.key.id, findings=(WasteFinding(DEAD_JSON, 10, 100),)))
        port.count(seen(cast, key.key.id, looked=False))
    assert await port.flush()

    def ask(user: Any, query: str = "") -> Any:
        return signed_in(user).get(HERE.format(cast.acme.id) + query)

    told = (await orm(ask)(cast.alice)).json()
    (one,) = told["keys"]
    assert (one["label"], one["requests"], one["looked_at"], one["nano"]) == (
        "nightly", 4, 2, 4_000,
    )  # fmt: skip
    (dead,) = one["findings"]
    # Two of four were looked at: what they would save is doubled.
    assert (dead["kind"], dead["requests"], dead["tokens"], dead["saves_nano"]) == (
        DEAD_JSON, 4, 40, 400,
    )  # fmt: skip
    assert (dead["client"], dead["code"]) == ("openai-node", "")
    assert dead["fix"] == KINDS[DEAD_JSON][1] and told["whole"]["findings"] == [dead]
    assert (await orm(ask)(cast.charlie)).status_code == 404
    wrong = await orm(ask)(cast.alice, "?days=0")
    assert wrong.status_code == 400 and "days" in wrong.json()["error"]["fields"]
