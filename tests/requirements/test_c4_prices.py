"""C4: the price at admission holds; streams under way keep it when another one is published."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from controlplane.catalog.selectors import model_find
from controlplane.catalog.services import PriceDraft, price_publish
from controlplane.composed.demo import MODEL
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.price import Price, TokenCounts, charge_nano
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.product import Plan, Product, running_product, verify_ledger
from tests.support.servers import Servers
from tests.support.waiting import until

STREAMS = 4
TOKENS = 60
SEEN_S_MAX = 20.0
DEARER = PriceDraft(input_pico=900_000, cached_pico=90_000, output_pico=3_600_000)


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers, Plan(tokens_per_s=20)) as product:
        yield product


@orm
def _publish() -> int:
    model = model_find(name=MODEL.name)
    assert model is not None
    return price_publish(actor=OPERATOR, model=model, draft=DEARER).version


def _charged(answer: Answer) -> tuple[int, int]:
    """(price version, output rate) of a charge that is its tokens at its own rates."""
    ((version, *rates, uncached, cached, output, nano),) = rows(
        "SELECT price_version, input_pico, cached_pico, output_pico, uncached, cached, output,"
        " amount FROM transfers WHERE request = %s AND kind = 'settle'",
        uuid.UUID(hex=answer.request),
    )
    price = Price(version=version, input_pico=rates[0], cached_pico=rates[1], output_pico=rates[2])
    counts = TokenCounts(uncached=uncached, cached=cached, output=output)
    assert nano == charge_nano(price, counts)
    return version, rates[2]


async def test_streams_under_way_keep_the_price_that_they_began_with(product: Product) -> None:
    async with open_client(product.urls[0]) as client:
        body = make_body(tokens=TOKENS)
        before = [asyncio.create_task(ask(client, product.key, body)) for _ in range(STREAMS)]
        await until(lambda: rows("SELECT count(*) FROM open_holds") == [(STREAMS,)])
        version = await _publish()
        held = rows("SELECT DISTINCT price_version FROM open_holds")
        later = await ask(client, product.key, make_body(tokens=1))
        for _ in range(int(SEEN_S_MAX)):
            if _charged(later)[0] == version:
                break
            later = await ask(client, product.key, make_body(tokens=1))
        answers = await asyncio.gather(*before)
    assert all(answer.whole for answer in answers)
    assert {(charged[0],) for charged in map(_charged, answers)} == set(held) == {(version - 1,)}
    assert _charged(later) == (version, DEARER.output_pico)
    await verify_ledger()
