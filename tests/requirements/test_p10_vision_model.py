"""P10 with a real model that sees, of random weights, behind a server in a process of its own:
through a gateway in this process, and through all processes and both databases of the product.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from controlplane.catalog.services import ModelDraft, model_create, price_publish
from controlplane.composed.demo import MODEL, POOL, PRICE
from controlplane.core.audit.entries import OPERATOR
from controlplane.embedded.stack import fleet_url
from controlplane.fleet.services import node_credential_create
from controlplane.kernel.price import Price, TokenCounts, charge_nano
from inference.contract.parts import PICTURE_MARK_TOKENS
from tests.product.traffic import open_client
from tests.support.loopback import HOST
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.people import demo_admin
from tests.support.pictures import data_url, image_file, image_part, seeing
from tests.support.product import Child, Plan, Product, running_product, verify_ledger
from tests.support.remote import remote_node
from tests.support.servers import Servers
from tests.support.serving import CHAT_PATH, Serving
from tests.support.vision_server import IMAGE_TOKENS, NAME, PATCH, vision_server
from tests.support.waiting import until

TOKENS = 24
IMAGES_MAX = 3
# For an image and its answer, and not for as many images as a request may have.
SEEING = ModelDraft(
    name=NAME, pool=POOL, context_window=64, output_tokens_default=TOKENS,
    output_tokens_max=TOKENS, images_max=IMAGES_MAX, image_tokens_max=IMAGE_TOKENS,
    image_patch=PATCH,
)  # fmt: skip


@pytest.fixture(scope="module")
def vision_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with vision_server(tmp_path_factory.mktemp("vision")) as url:
        yield url


@pytest.fixture
def product(servers: Servers, vision_url: str, tmp_path: Path) -> Iterator[Product]:
    """One gateway, an echo that does not see, and a node in front of the model that does."""
    with running_product(servers, Plan(nodes=1)) as product:
        price_publish(actor=OPERATOR, model=model_create(actor=OPERATOR, draft=SEEING), draft=PRICE)
        made = node_credential_create(actor=OPERATOR, name="eyes", pool=POOL, models=[NAME])
        argv = [sys.executable, "-m", "inference", "--name", "eyes", "--engine", "remote"]
        argv += ["--url", vision_url, "--model-name", NAME]
        argv += ["--gateway", fleet_url(HOST, product.ports[0])]
        env = {"SLUICE_NODE_CREDENTIAL": made.secret}
        product.nodes.append(Child("eyes", argv, env, tmp_path / "eyes.log"))
        product.mend()
        yield product


def shown(*colors: str) -> list[dict[str, Any]]:
    """A turn with an image of each colour."""
    images = [image_part(data_url(image_file((300, 300), color=color))) for color in colors]
    return [{"role": "user", "content": [{"type": "text", "text": "Hm?"}, *images]}]


async def test_a_real_model_answers_by_what_it_sees(bare: Serving, vision_url: str) -> None:
    bare.under_test.keys.current = seeing(
        bare.under_test.keys.current, image_patch=PATCH, image_tokens_max=IMAGE_TOKENS
    )
    said = []
    async with remote_node(bare.under_test, vision_url, upstream_model=NAME):
        for color in ("red", "blue", "red"):
            body = (await bare.chat(messages=shown(color), max_tokens=TOKENS)).json()
            said.append(body["choices"][0]["message"]["content"])
            used = body["usage"]
            assert used["completion_tokens"] == TOKENS
        plain = (await bare.chat(messages=[{"role": "user", "content": "Hm?"}])).json()
        # An image is so many tokens, and the charge is for what the model has counted.
        assert used["prompt_tokens"] - plain["usage"]["prompt_tokens"] == IMAGE_TOKENS
        counted = [each.counts.uncached for each in bare.under_test.ledger.settled.values()]
        assert counted[-2] == used["prompt_tokens"]
        await bare.under_test.at_rest()
    assert said[0] == said[2]
    assert said[0] != said[1]


async def test_images_go_through_every_process_and_are_on_ledger_and_page(
    product: Product,
) -> None:
    async with open_client(product.urls[0]) as client:
        client.headers["authorization"] = f"Bearer {product.key}"
        said = []
        for color in ("red", "blue", "red"):
            answer = await ask(client, NAME, color)
            assert answer.status_code == 200, answer.text
            said.append(answer.json()["choices"][0]["message"]["content"])
        assert said[0] == said[2] != said[1]
        seen, plain = answer, await ask(client, NAME)
        used = [each.json()["usage"]["prompt_tokens"] for each in (seen, plain)]
        assert used[0] - used[1] == IMAGE_TOKENS
        crowded = await ask(client, NAME, *["red"] * IMAGES_MAX)
        blind = await ask(client, MODEL.name, "red")
    error = crowded.json()["error"]
    assert (crowded.status_code, error["code"]) == (400, "context_length_exceeded")
    counted = IMAGES_MAX * (IMAGE_TOKENS + PICTURE_MARK_TOKENS)
    assert f"({counted} in the messages, {TOKENS} in the completion)" in error["message"]
    error = blind.json()["error"]
    assert (blind.status_code, error["param"]) == (400, "messages[0].content[1]")
    assert error["message"] == "This model does not accept image parts."
    (line,) = await orm(charges)(seen)
    assert line == (charge_of(used[0]), used[0], 0, TOKENS, PRICE.input_pico)
    for refused in (crowded, blind):
        assert not await orm(charges)(refused)
    await verify_ledger()
    await until(lambda: orm(page)(seen))
    assert "<dt>Images</dt><dd>1</dd>" in await orm(page)(seen)
    assert "<dt>Images</dt>" not in await orm(page)(plain)


async def ask(client: httpx2.AsyncClient, model: str, *colors: str) -> httpx2.Response:
    body = {"model": model, "messages": shown(*colors), "max_tokens": TOKENS}
    return await client.post(CHAT_PATH, json=body)


def charge_of(prompt: int) -> int:
    """Nano-USD of such a prompt and its answer."""
    rates = {name: getattr(PRICE, name) for name in ("input_pico", "cached_pico", "output_pico")}
    counts = TokenCounts(uncached=prompt, cached=0, output=TOKENS)
    return charge_nano(Price(version=1, **rates), counts)


def charges(answer: httpx2.Response) -> list[tuple[int, ...]]:
    return rows(
        "SELECT amount, uncached, cached, output, input_pico FROM transfers"
        " WHERE request = %s AND kind IN ('settle', 'late', 'overage')",
        uuid.UUID(hex=answer.headers["x-request-id"].removeprefix("req_")),
    )


def page(answer: httpx2.Response) -> str:
    """The request's page, empty as long as there is no record."""
    found = demo_admin().get(f"/requests/{answer.headers['x-request-id']}")
    return found.content.decode() if found.status_code == 200 else ""
