"""I6: speculative decoding, with its acceptance rate shown."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest
from django.test import Client

from controlplane.composed.demo import MODEL
from tests.product.traffic import Answer, ask, make_body, open_client, word_token
from tests.support.people import demo_admin
from tests.support.product import Plan, Product, running_product
from tests.support.servers import Servers

TOKENS = 200
GATEWAYS = 2


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers, Plan(gateways=GATEWAYS, speculates=True)) as product:
        yield product


async def _ask(product: Product) -> list[Answer]:
    """The same of both gateways at once, so that steps have outputs for both."""
    # The prompt is one word again and again, and so is this answer: what is guessed is right.
    body = {**make_body(tokens=TOKENS), "logit_bias": {str(word_token()): 100}}

    async def one(url: str) -> Answer:
        async with open_client(url) as client:
            return await ask(client, product.key, body)

    return await asyncio.gather(*map(one, product.urls))


def _tile(client: Client, query: str = "") -> tuple[str, int, int]:
    """The share as it is shown, and the exact counts behind it; zeros where there are none."""
    page = client.get(f"/?range=15m{query}").content.decode()
    (share,) = re.findall(r'data-cell="drafts">([^<]*)<', page)
    counts = re.search(r'data-cell="drafts.tokens" title="([\d,]+) of ([\d,]+)"', page)
    if counts is None:
        return share, 0, 0
    accepted, drafted = (int(count.replace(",", "")) for count in counts.groups())
    return share, accepted, drafted


def test_the_share_of_drafts_that_were_right_is_shown_once_for_all_gateways(
    product: Product,
) -> None:
    client = demo_admin()
    assert _tile(client) == ("–", 0, 0)
    answers = asyncio.run(_ask(product))
    assert all(answer.whole for answer in answers)
    for gateway in product.gateways:
        # Now everything is written.
        gateway.stop()
    share, accepted, drafted = _tile(client)
    # A step delivers the one draft that was right and one token more; told twice it were too much.
    assert TOKENS * GATEWAYS / 4 < accepted <= min(drafted, TOKENS * GATEWAYS / 2)
    assert float(share.removesuffix(" %")) == pytest.approx(100 * accepted / drafted, abs=0.5)
    assert _tile(client, f"&model={MODEL.name}") == (share, accepted, drafted)
    assert _tile(client, "&model=another") == ("–", 0, 0)
