"""C6: routing rules as versions on a whole product: dry run, canary share, publication, rollback.

Two real gateway processes with one node; the operator works by the API, as a program would.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest

from controlplane.composed.demo import MODEL, POOL
from controlplane.kernel.rules import draw_of
from tests.product.traffic import Answer, ask, make_body, open_clients
from tests.support.money import rows
from tests.support.operations import operate
from tests.support.orm import orm
from tests.support.product import Plan, Product, running_product
from tests.support.rules import generates
from tests.support.servers import Servers
from tests.support.waiting import until

ALIAS = "chat"
REQUESTS = 40
SHARE_PERMILLE = 500
BODY = {**make_body(tokens=1, stream=False), "model": ALIAS}
IN_FORCE = generates("chat", MODEL.name, aliases=[ALIAS])
ON_TRIAL = generates("chat", MODEL.name, aliases=[ALIAS]) | {"deadline_s": 30}
ELSEWHERE = generates("chat", MODEL.name, aliases=[ALIAS], prompt_tokens_min=1_000)


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    """Two gateways and a node."""
    with running_product(servers, Plan(gateways=2)) as product:
        yield product


@pytest.fixture
async def clients(product: Product) -> AsyncIterator[list[httpx2.AsyncClient]]:
    """One for each gateway."""
    async with open_clients(product.urls) as made:
        yield made


async def draft(rule: dict[str, Any]) -> int:
    made = await operate("POST", "routing/versions", {"rules": [rule]})
    return int(made["version"])


def route(answer: Answer) -> str:
    return answer.headers.get("x-sluice-route", "")


@orm
def recorded() -> int:
    ((count,),) = rows("SELECT count(*) FROM request_records WHERE route <> 'direct'")
    return int(count)


async def test_c6_from_draft_to_dry_run_canary_publication_and_back(
    product: Product, clients: list[httpx2.AsyncClient]
) -> None:
    async def asked(times: int = 1) -> list[Answer]:
        return [await ask(client, product.key, BODY) for _ in range(times) for client in clients]

    async def all_by(label: str) -> bool:
        return {route(answer) for answer in await asked()} == {label}

    assert {answer.status for answer in await asked()} == {404}

    first = await draft(IN_FORCE)
    await operate("POST", f"routing/versions/{first}/publish", {"revision": 1})
    await until(lambda: all_by("chat@1"))

    second = await draft(ON_TRIAL)
    start = {"revision": 1, "share_permille": SHARE_PERMILLE}
    began = await operate("POST", f"routing/versions/{second}/canary", start)
    assert (began["state"], began["share_permille"]) == ("canary", SHARE_PERMILLE)

    async def both_arms() -> bool:
        return {route(answer) for answer in await asked(4)} == {"chat@1", "chat@2"}

    await until(both_arms)
    answers = await asked(REQUESTS // 2)
    assert all(answer.whole for answer in answers)
    for answer in answers:
        lot = draw_of(uuid.UUID(answer.request.rpartition("_")[2]).bytes)
        wanted = "chat@2" if lot < SHARE_PERMILLE / 1_000 else "chat@1"
        assert route(answer) == wanted

    await until(lambda: _recorded_at_least(REQUESTS), 10)
    third = await draft(ELSEWHERE)
    found = await operate("POST", f"routing/versions/{third}/dry-run", {"hours": 1})
    total = found["total"]
    assert total["requests"] == total["moved"] >= REQUESTS
    assert found["out_of_service"] == total["moved"]
    (move,) = found["moves"]
    assert move["before"] == {"model": MODEL.name, "pool": POOL}
    assert move["after"] == {"model": ALIAS, "pool": ""}

    await operate("POST", f"routing/versions/{second}/promote")
    await until(lambda: all_by("chat@2"))
    back = await operate("POST", "routing/rollback")
    assert (back["version"], back["copy_of"]) == (4, first)
    await until(lambda: all_by("chat@4"))


async def _recorded_at_least(count: int) -> bool:
    return await recorded() >= count


async def test_c6_a_canary_is_compared_while_it_runs(
    product: Product, clients: list[httpx2.AsyncClient]
) -> None:
    first = await draft(IN_FORCE)
    await operate("POST", f"routing/versions/{first}/publish", {"revision": 1})
    second = await draft(ON_TRIAL)
    start = {"revision": 1, "share_permille": SHARE_PERMILLE}
    await operate("POST", f"routing/versions/{second}/canary", start)

    async def arms() -> list[int]:
        for client in clients:
            await ask(client, product.key, BODY)
        report = (await operate("GET", "routing/canary"))["canary"]
        errors = report["figures"][0]
        assert (errors["figure"], errors["trial"] or 0, errors["control"] or 0) == ("errors", 0, 0)
        assert (report["verdict"], report["astray"]) == ("not enough data yet", 0)
        return list(errors["counts"])

    async def both_counted() -> bool:
        return min(await arms()) >= 3

    # Requests of the first seconds are left out, since gateways were still to hear of it.
    await until(both_counted, 20)
    await operate("POST", f"routing/versions/{second}/stop", {"reason": "enough seen"})
    assert await operate("GET", "routing/canary") == {"canary": None}
