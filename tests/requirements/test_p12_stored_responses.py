"""P12: responses are stored where their project keeps content, and found at every gateway.

Two real gateways share one echo node. One of them is asked to stop and one is killed while it runs
responses that no client waits for.
"""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from controlplane.composed.demo import MODEL
from controlplane.contents.services import Keeping, contents_configure
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.kernel.ids import uuid_of
from controlplane.kernel.money import usd_text
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.models import Organization
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.services import project_create
from controlplane.tenants.sign_in.accounts import user_create
from tests.product.books import bills, no_time_left, open_holds
from tests.support.orm import orm
from tests.support.product import Plan, Product, demo_key, running_product, verify_ledger
from tests.support.servers import Servers
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)
DEADLINE_S, GRACE_S = 15, 5
TOKENS_PER_S = 100.0
DAYS = 30
ASKED: Any = {"model": MODEL.name, "input": "Say it.", "max_output_tokens": 12}
# Longer than a gateway that is asked to stop waits.
LONG: Any = {**ASKED, "max_output_tokens": 1_000}

# Bursts of responses that are cancelled at so many moments around their end.
RACES, RACERS, ENDS_S = 4, 6, 0.3
LOOK_S = 0.05


def short_deadlines(number: int) -> dict[str, str]:
    return {"SLUICE_REQUEST_DEADLINE_S": str(DEADLINE_S), "SLUICE_HOLD_GRACE_S": str(GRACE_S)}


@pytest.fixture(scope="module")
def product(servers: Servers) -> Iterator[Product]:
    plan = Plan(gateways=2, tokens_per_s=TOKENS_PER_S, gateway_env=short_deadlines)
    with running_product(servers, plan) as product:
        yield product


@orm
def make_key(days: int) -> str:
    """A key of a new project that keeps content for so many days."""
    name = uuid.uuid4().hex
    organization = Organization.objects.get(id=demo_key().organization_id)
    owner = user_create(actor=OPERATOR, email=f"{name}@example.org")
    membership_set(actor=OPERATOR, organization=organization, user=owner, role=Role.OWNER)
    project = project_create(actor=owner, organization=organization, name=name)
    if days:
        contents_configure(actor=owner, project=project, keeping=Keeping(days, []))
    return apikey_create(actor=owner, project=project, label="app").secret


Clients = Callable[[int], Awaitable[list[AsyncOpenAI]]]


@pytest.fixture
async def clients_of(product: Product) -> AsyncIterator[Clients]:
    """Makes a key, and the official client with it at each gateway, once both know it."""
    async with AsyncExitStack() as stack:

        async def make(days: int) -> list[AsyncOpenAI]:
            key = await make_key(days)
            made = [
                AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
                for url in product.urls
            ]
            for client in made:
                await stack.enter_async_context(client)
                await until(partial(knows, client))
            return made

        yield make


async def knows(client: AsyncOpenAI) -> bool:
    """Whether its gateway knows its key."""
    try:
        await client.models.list()
    except openai.AuthenticationError:
        return False
    return True


async def ended(client: AsyncOpenAI, response: str) -> Any:
    async def over() -> bool:
        return (await client.responses.retrieve(response)).status not in ("queued", "in_progress")

    await until(over)
    return await client.responses.retrieve(response)


def charged(told: Any) -> None:
    """What the client reads is what the ledger has."""
    bill = bills()[uuid_of(told.id, "resp").hex]
    assert bill.charges == 1
    assert told.model_extra["sluice"]["cost_usd"] == usd_text(bill.nano)
    assert told.usage.output_tokens == bill.output


def texts(items: list[Any]) -> list[str]:
    """All that is said in items, aloud or not."""
    return [part.text for item in items for part in item.content]


async def test_each_gateway_knows_what_the_other_answered(
    product: Product, clients_of: Clients
) -> None:
    here, there = await clients_of(DAYS)
    first = await here.responses.create(**ASKED)
    # Its row is there before its last bytes are.
    second = await there.responses.create(**ASKED, previous_response_id=first.id)
    stream = await here.responses.create(**ASKED, previous_response_id=second.id, stream=True)
    third = [event async for event in stream][-1].response
    for told in (first, second, third):
        assert told.store is True
        assert await there.responses.retrieve(told.id) == told
        charged(told)
    listed: Any = there.responses.input_items.list(third.id, order="asc", limit=2)
    items = [item async for item in listed]
    before = [*texts(first.output), "Say it.", *texts(second.output)]
    assert texts(items) == ["Say it.", *before, "Say it."]
    assert first.usage and third.usage
    assert third.usage.input_tokens > first.usage.input_tokens
    await there.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        await here.responses.retrieve(first.id)
    # What follows it has all that it needs.
    await here.responses.create(**ASKED, previous_response_id=second.id)
    # A request's own content is not written again behind the deletion.
    with pytest.raises(openai.BadRequestError) as unknown:
        await here.responses.create(**ASKED, previous_response_id=first.id)
    assert unknown.value.code == "previous_response_not_found"


async def test_others_neither_see_nor_store_it(product: Product, clients_of: Clients) -> None:
    told = await (await clients_of(DAYS))[0].responses.create(**ASKED)
    for days in (DAYS, 0):
        other = (await clients_of(days))[1]
        for ask in (
            other.responses.retrieve, other.responses.delete, other.responses.cancel,
            other.responses.input_items.list,
        ):  # fmt: skip
            with pytest.raises(openai.NotFoundError):
                await ask(told.id)
        with pytest.raises(openai.BadRequestError):
            await other.responses.create(**ASKED, previous_response_id=told.id)
    assert (await other.responses.create(**ASKED)).store is False
    with pytest.raises(openai.BadRequestError, match="does not keep content"):
        await other.responses.create(**ASKED, background=True)


async def test_a_background_response_is_polled_and_cancelled_anywhere(
    product: Product, clients_of: Clients
) -> None:
    here, there = await clients_of(DAYS)
    queued = await here.responses.create(**ASKED, background=True)
    assert queued.status == "queued"
    charged(await ended(there, queued.id))
    queued = await here.responses.create(**LONG, background=True)
    await until(lambda: product.under_way() == 1)
    assert (await there.responses.cancel(queued.id)).status == "cancelled"
    await until(lambda: product.under_way() == 0 and not open_holds())
    for client in (here, there):
        assert (await client.responses.retrieve(queued.id)).status == "cancelled"
    bill = bills()[uuid_of(queued.id, "resp").hex]
    assert bill.charges == 1
    assert bill.output < LONG["max_output_tokens"]
    await verify_ledger()


async def raced(here: AsyncOpenAI, there: AsyncOpenAI, pause_s: float) -> tuple[str, set[str]]:
    """A short response, cancelled after so long: its id, and every end that anybody was told of."""
    queued = await here.responses.create(**ASKED, background=True)
    seen: set[str] = set()

    async def look(client: AsyncOpenAI) -> None:
        while not seen - {"in_progress"}:
            await asyncio.sleep(LOOK_S)
            seen.add(str((await client.responses.retrieve(queued.id)).status))

    async def cancel() -> None:
        await asyncio.sleep(pause_s)
        seen.add(str((await there.responses.cancel(queued.id)).status))

    await asyncio.gather(look(here), look(there), cancel())
    return queued.id, seen - {"in_progress"}


async def test_a_response_cancelled_as_it_ends_ends_once_and_is_charged_once(
    product: Product, clients_of: Clients
) -> None:
    """Whoever comes second changes nothing, at whichever gateway, and tells what the first did."""
    here, there = await clients_of(DAYS)
    ends: dict[str, set[str]] = {}
    for turn in range(RACES):
        first_s = ENDS_S * turn / RACES
        pairs = [(here, there), (there, here), (here, here)]
        told = [
            raced(*pair, first_s + ENDS_S * n / RACERS) for n in range(RACERS) for pair in pairs
        ]
        ends.update(await asyncio.gather(*told))
    await until(lambda: product.under_way() == 0 and not open_holds())
    for response, told_of in ends.items():
        for client in (here, there):
            told_of.add(str((await client.responses.retrieve(response)).status))
    assert {len(told_of) for told_of in ends.values()} == {1}, ends
    assert {end for told_of in ends.values() for end in told_of} <= {"cancelled", "incomplete"}
    charges = [bills()[uuid_of(response, "resp").hex].charges for response in ends]
    assert set(charges) == {1}
    await verify_ledger()


async def test_a_gateway_that_stops_says_what_it_could_not_finish(
    product: Product, clients_of: Clients
) -> None:
    here, there = await clients_of(DAYS)
    long = await here.responses.create(**LONG, background=True)
    short = await here.responses.create(**{**ASKED, "max_output_tokens": 200}, background=True)
    await until(lambda: product.under_way() == 2)
    product.gateways[0].signal(signal.SIGTERM)
    charged(await ended(there, short.id))
    told = await ended(there, long.id)
    assert told.status == "failed"
    assert told.error.code
    await asyncio.to_thread(product.gateways[0].wait)
    await until(lambda: not open_holds())
    await verify_ledger()
    await asyncio.to_thread(product.mend)


async def test_a_gateway_that_dies_leaves_no_response_under_way(
    product: Product, clients_of: Clients
) -> None:
    here, there = await clients_of(DAYS)
    queued = await here.responses.create(**LONG, background=True)
    await until(lambda: product.under_way() == 1)
    await asyncio.to_thread(product.gateways[0].kill)
    assert (await there.responses.retrieve(queued.id)).status == "in_progress"
    told = await ended(there, queued.id)
    assert (told.status, told.error.code) == ("failed", "server_error")
    # Its node has told the other gateway what it made of it, or nothing is owed.
    await until(no_time_left)
    found = bills().get(uuid_of(queued.id, "resp").hex)
    assert found is None or found.charges == 1
    await verify_ledger()
    await asyncio.to_thread(product.mend)
