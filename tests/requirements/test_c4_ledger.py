"""C4, what is there of it: a double-entry ledger that nobody changes, priced by kind of token."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from controlplane.billing.ledger.models import Transfer
from controlplane.billing.ledger.selectors import request_charge, request_lines
from controlplane.kernel.price import Price, TokenCounts, charge_nano
from tests.product.books import open_holds
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.money import dsn, rows
from tests.support.orm import orm
from tests.support.product import Product, running_product, verify_ledger
from tests.support.servers import Servers

TOKENS = 7


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers) as product:
        yield product


def _booked(answer: Answer) -> tuple[list[Transfer], int | None]:
    ((organization,),) = rows("SELECT id FROM organizations")
    request = uuid.UUID(hex=answer.request)
    lines = request_lines(organizations=[organization], request=request)
    return lines, request_charge(organization=organization, request=request)


async def test_an_answer_is_held_and_settled_to_the_nano(product: Product) -> None:
    async with open_client(product.urls[0]) as client:
        answer = await ask(client, product.key, make_body(tokens=TOKENS))
        assert answer.whole
    lines, charged = await orm(_booked)(answer)
    held, settled = lines
    assert [held.kind, settled.kind] == ["hold", "settle"]
    # A hold is an upper bound and posts nothing: settling it gives back what was not used.
    assert held.amount >= settled.amount
    assert open_holds() == 0
    assert {(line.debit.split(":")[0], line.credit.split(":")[0]) for line in lines} == {
        ("receivable", "revenue")
    }
    price = Price(
        version=settled.price_version,
        input_pico=settled.input_pico,
        cached_pico=settled.cached_pico,
        output_pico=settled.output_pico,
    )
    counts = TokenCounts(uncached=settled.uncached, cached=settled.cached, output=settled.output)
    assert counts.output == answer.tokens == TOKENS
    assert 3 <= price.output_pico / price.input_pico <= 5
    assert price.cached_pico < price.input_pico
    assert charged == settled.amount == charge_nano(price, counts)
    await verify_ledger()


async def test_no_line_can_be_changed_by_anybody(product: Product) -> None:
    async with open_client(product.urls[0]) as client:
        await ask(client, product.key, make_body(tokens=TOKENS))
    for change in ("UPDATE transfers SET amount = amount + 1", "DELETE FROM transfers"):
        for role in ("owner", "default", "gateway"):
            with (
                psycopg.connect(dsn(role), autocommit=True) as connection,
                pytest.raises(psycopg.Error),
            ):
                connection.execute(change.encode())
    await verify_ledger()
