"""S5: what kinds of clients waste, with the fix as code for each, through real processes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI, RateLimitError

from controlplane.composed.demo import MODEL
from controlplane.composed.keys.services import KeyOrder, key_make
from controlplane.core.audit.entries import OPERATOR
from controlplane.insights.hygiene import Waste, hygiene_read
from controlplane.kernel.insights.hygiene import HASTY, NOT_STREAMED, RETRY, TOOLS_AGAIN
from controlplane.quotas.services import LimitSet
from controlplane.tenants.keys import CreatedKey, KeyTerms
from controlplane.tenants.models import Project
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.product import Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.sluice_run import environment, manage
from tests.support.waiting import until, wait_for

ANSWER_TOKENS = 80
FRAMEWORK = "langchain-openai/1.7.4 OpenAI/Python 3.57.0"
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks a hotel up by all that may be known of it. " * 20,
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    """A gateway, and a node that computes."""
    with running_product(servers, Plan(speculates=True)) as product:
        yield product


def client(product: Product, key: str, **more: Any) -> OpenAI:
    return OpenAI(base_url=f"{product.urls[0]}/v1", api_key=key, max_retries=0, **more)


def say(text: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    # So long that somebody waits, whatever the model would say.
    longest = {"min_tokens": ANSWER_TOKENS}
    asked = {"model": MODEL.name, "messages": messages, "max_tokens": ANSWER_TOKENS}
    return {**asked, "extra_body": longest, **more}


def limited_key() -> CreatedKey:
    """One of the demo's project that may ask once a minute."""
    ((project, organization),) = rows("SELECT id, organization_id FROM projects")
    of = Project(id=project, organization_id=organization)
    order = KeyOrder("hasty", KeyTerms(), limits=LimitSet(requests_per_min=1))
    return key_make(actor=OPERATOR, project=of, order=order)


def wastes() -> dict[str, dict[str, Waste]]:
    """By label of a key and kind."""
    ((organization,),) = rows("SELECT organization_id FROM projects")
    now = datetime.now(UTC)
    start, end = now - timedelta(hours=2), now + timedelta(hours=1)
    found = hygiene_read(actor=OPERATOR, organization=organization, start=start, end=end)
    return {key.label: {one.kind: one for one in key.wastes} for key in found.keys}


async def test_what_clients_waste_is_told_with_code_for_each(product: Product) -> None:
    key = await orm(limited_key)()

    def ask() -> None:
        ours, framework = (
            client(product, product.key),
            client(product, key.secret, default_headers={"User-Agent": FRAMEWORK}),
        )
        for _ in range(2):
            ours.chat.completions.create(**say("What is a hold?"))
        for text in ("A pool?", "A view?"):
            ours.chat.completions.create(**say(text, tools=[TOOL], max_tokens=2, extra_body={}))
        ours.chat.completions.create(**say("Streamed", stream=True)).close()
        wait_for(lambda: _served(framework), "the new key to serve")
        for _ in range(2):
            with pytest.raises(RateLimitError):
                framework.chat.completions.create(**say("Too soon", stream=True))

    await orm(ask)()

    async def counted() -> bool:
        found = await orm(wastes)()
        return HASTY in found.get("hasty", {}) and any(TOOLS_AGAIN in one for one in found.values())

    await until(counted)
    found = await orm(wastes)()
    (label,) = found.keys() - {"hasty"}
    ours, framework = found[label], found["hasty"]
    assert set(ours) == {NOT_STREAMED, RETRY, TOOLS_AGAIN}
    assert (ours[NOT_STREAMED].requests, ours[NOT_STREAMED].nano) == (2, 0)
    assert ours[NOT_STREAMED].tokens == 2 * ANSWER_TOKENS
    assert ours[RETRY].requests == ours[TOOLS_AGAIN].requests == 1 and ours[TOOLS_AGAIN].nano > 0
    assert {one.client for one in ours.values()} == {"openai-python"}
    assert "stream=True" in ours[NOT_STREAMED].code
    assert "prompt_cache_key" in ours[TOOLS_AGAIN].code
    assert (framework[HASTY].requests, framework[HASTY].client) == (1, "langchain")
    assert "ChatOpenAI(..., max_retries=" in framework[HASTY].code


def _served(framework: OpenAI) -> bool:
    try:
        framework.chat.completions.create(**say("Hello", stream=True)).close()
    except Exception:
        return False
    return True


def preflight(product: Product, folder: Path, body: dict[str, Any], *arguments: str) -> str:
    ran = subprocess.run(
        manage("preflight", "-", "--url", product.urls[0], *arguments),
        env=environment(folder, SLUICE_API_KEY=product.key),
        input=json.dumps(body),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_command_tells_of_streaming_before_it_is_missed(
    product: Product, tmp_path: Path
) -> None:
    body = {"model": MODEL.name, "messages": [{"role": "user", "content": "What is a hold?"}]}
    out = preflight(product, tmp_path, body, "--client", "openai-node")
    assert "Not streamed" in out and "stream: true" in out
    short = body | {"max_tokens": 8}
    told = json.loads(preflight(product, tmp_path, short, "--json"))
    assert told["streaming"]["asked"] is False and told["streaming"]["code"].startswith("curl -N")
    assert told["hygiene"] == []
    streamed = short | {"stream": True}
    assert "without stream_options.include_usage" in preflight(product, tmp_path, streamed)
    whole = streamed | {"stream_options": {"include_usage": True}}
    told = json.loads(preflight(product, tmp_path, whole, "--json"))
    assert told["streaming"] == {"asked": True, "includes_usage": True, "code": ""}
    assert "tream" not in preflight(product, tmp_path, whole)
