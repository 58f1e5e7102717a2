"""Requirements that other tests hold of a gateway in their own process, held by processes: pages
and traffic in one, nodes with the built-in engines in pools of their own, PostgreSQL and Redis.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import httpx2
import pytest

from controlplane.catalog.services import ModelDraft
from controlplane.composed.demo import EMBED_PRICE, MODEL, POOL
from controlplane.kernel.spans import INDEX, unpack_spans
from inference.contract.roofline import RUNS_ON
from tests.product.books import bills, open_holds
from tests.product.traffic import Answer, ask, open_client
from tests.support.encoders import CONTEXT, ENCODER, make_encoder
from tests.support.installation import (
    CHAT,
    COMPLETIONS,
    add_node,
    installation,
    operate,
    organization,
    page_of,
    post,
    say,
    scraped,
)
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.product import Plan, Product
from tests.support.rules import make_models, publish
from tests.support.servers import Servers
from tests.support.shipped import SHIPPED, long_prompt, no_end
from tests.support.waiting import until, wait_for

LONG = "The handbook says that doors open at nine. " * 40
TOO_LONG = "word " * 6_000
TOKENS = 8
PHASES = ("prefill", "decode")
BLOCK_TOKENS, STEP_TOKENS = 16, 64
# A node with room for ten blocks, which takes some requests at once.
TIGHT = ModelDraft(
    name="tight", pool="tight", context_window=128, output_tokens_default=64, output_tokens_max=64
)
AT_ONCE, ROOM_TOKENS = 4, 160
LITTLE = ("--kv-mib", "1", "--dtype", "float32", "--credits", str(AT_ONCE))
# Its processes start together, and the first test waits for all of them.
pytestmark = pytest.mark.timeout(300)
EMBEDS = ModelDraft(name=ENCODER, pool="embeddings", context_window=CONTEXT, task="embed")


@pytest.fixture(scope="module")
def product(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    folder: Path = tmp_path_factory.mktemp("rows")
    blocks = ("--block-size", str(BLOCK_TOKENS), "--threads", "1")
    plan = Plan(speculates=True, options=(*blocks, "--step-tokens", str(STEP_TOKENS)))
    with installation(servers, plan) as product:
        model = ("--model", str(SHIPPED), "--model-name", TIGHT.name)
        add_node(product, folder, TIGHT, *model, *blocks, *LITTLE)
        encoder = ("--engine", "embed", "--model", str(make_encoder(folder)), "--dtype", "float32")
        add_node(product, folder, EMBEDS, *encoder, "--threads", "1", price=EMBED_PRICE)
        product.mend()
        yield product


@pytest.fixture
async def client(product: Product) -> AsyncIterator[httpx2.AsyncClient]:
    made = open_client(product.urls[0])
    yield made
    await made.aclose()


async def chat(
    client: httpx2.AsyncClient, product: Product, text: str, *, stream: bool = False, **more: Any
) -> Answer:
    said = [{"role": "user", "content": text}]
    body = {"model": MODEL.name, "messages": said, "max_tokens": TOKENS, "stream": stream, **more}
    return await ask(client, product.key, body, path=CHAT)


def deltas(answer: Answer) -> list[str]:
    choices = [choice for event in answer.events for choice in event.get("choices", ())]
    return [text for one in choices if (text := one["delta"].get("content"))]


async def test_p2_a_stream_comes_in_pieces_and_says_what_a_whole_answer_says(
    product: Product, client: httpx2.AsyncClient
) -> None:
    fixed: dict[str, Any] = {"temperature": 0, "seed": 1}
    streamed = await chat(client, product, "What is a hold?", stream=True, **fixed)
    whole = await chat(client, product, "What is a hold?", **fixed)
    assert streamed.whole and whole.whole
    pieces = deltas(streamed)
    assert len(pieces) > 1
    (choice,) = whole.events[0]["choices"]
    assert "".join(pieces) == choice["message"]["content"]


async def test_p5_what_is_too_long_reaches_no_node_and_costs_nothing(
    product: Product, client: httpx2.AsyncClient
) -> None:
    refused = await chat(client, product, TOO_LONG)
    assert (refused.status, refused.error["code"]) == (400, "context_length_exceeded")
    await until(lambda: product.under_way() == 0 and open_holds() == 0)
    assert refused.request not in bills()


async def test_p9_a_rule_falls_back_to_the_model_that_serves(
    product: Product, client: httpx2.AsyncClient
) -> None:
    steps = [{"targets": [{"model": name}], "queue_s": 0} for name in ("absent", MODEL.name)]
    await orm(make_models)("absent")
    await orm(publish)(
        {"name": "kind", "match": {"aliases": ["kind"], "tasks": ["generate"]}, "steps": steps}
    )

    async def served() -> bool:
        answer = await chat(client, product, "Hello", model="kind")
        return answer.whole and answer.events[0]["model"] == MODEL.name

    await until(served)


async def test_i3_a_prefix_is_read_from_the_cache_and_s2_counts_it(
    product: Product, client: httpx2.AsyncClient
) -> None:
    first = await chat(client, product, f"{LONG}When?")
    again = await chat(client, product, f"{LONG}Why?")
    assert first.usage is not None and again.usage is not None
    cached = again.usage["prompt_tokens_details"]["cached_tokens"]
    assert 0 < cached < again.usage["prompt_tokens"]

    def recorded() -> list[tuple[int]]:
        query = "SELECT cached_tokens FROM request_records WHERE request = %s"
        return rows(query, uuid.UUID(hex=again.request))

    await until(lambda: recorded() == [(cached,)])


def test_i7_a_node_says_what_it_runs_on(product: Product) -> None:
    assert RUNS_ON in product.nodes[0].log


def test_p6_a_stored_template_has_versions_and_its_stable_part_caches(product: Product) -> None:
    templates = f"catalog/templates/{organization()}"
    operate(product, "POST", templates, {"name": "handbook"})

    def publish_with(rules: str) -> None:
        ask_about = {"role": "user", "content": "Context: {{context}}\nWhat follows?"}
        body = {
            "messages": [{"role": "system", "content": rules}, ask_about],
            "variables": [{"name": "context", "chars_max": 60}],
        }
        made = operate(product, "POST", f"{templates}/handbook/versions", {"body": body})
        version = f"{templates}/handbook/versions/{made['version']}"
        operate(product, "POST", f"{version}/publish", {"revision": 1})

    def filled(context: str, **named: Any) -> httpx2.Response:
        prompt = {"id": "handbook", "variables": {"context": context}, **named}
        return post(product, CHAT, model=MODEL.name, prompt=prompt, max_tokens=1)

    def label(**named: Any) -> str | None:
        return filled("Bring your badge.", **named).headers.get("x-sluice-prompt")

    publish_with(LONG)
    wait_for(lambda: label() == "handbook:1", "the template")
    used = filled("The canteen closes at two.").json()["usage"]
    cached = used["prompt_tokens_details"]["cached_tokens"]
    # All whole blocks of the stable part, and nothing behind it.
    assert 0 < used["prompt_tokens"] - cached < 3 * BLOCK_TOKENS
    refused = filled("x" * 61)
    assert (refused.status_code, refused.json()["error"]["param"]) == (
        400,
        "prompt.variables.context",
    )
    publish_with("Be brief.")
    wait_for(lambda: label() == "handbook:2", "the second version")
    assert label(version=1) == "handbook:1"


def refusal(answer: Answer) -> str:
    """Why it was refused; structured, and the same in every header."""
    error = answer.error
    assert (answer.status, error["code"]) == (503, "server_is_overloaded"), error
    told = error["degraded"]
    assert told["steps"] and answer.headers["x-should-retry"] == "true"
    assert int(answer.headers["retry-after"]) == ceil(told["retry_after_ms"] / 1000)
    return str(told["reason"])


def test_p8_of_a_crowd_who_cannot_be_served_in_time_is_told_so(product: Product) -> None:
    steps = [{"targets": [{"model": TIGHT.name}], "queue_s": 0.05}]
    publish(
        {"name": "brief", "match": {"aliases": ["brief"], "tasks": ["generate"]}, "steps": steps}
    )
    body = {"model": "brief", "prompt": long_prompt(30), "max_tokens": 60, "stream": False,
            "logit_bias": no_end()}  # fmt: skip
    wait_for(lambda: post(product, COMPLETIONS, **body).status_code == 200, "the rule")

    async def crowd() -> list[Answer]:
        async with open_client(product.urls[0]) as client:
            asked = (ask(client, product.key, body) for _ in range(6 * AT_ONCE))
            return await asyncio.gather(*asked)

    answers = asyncio.run(crowd())
    reasons = [refusal(answer) for answer in answers if not answer.whole]
    assert 0 < len(reasons) < len(answers), reasons


@dataclass
class Later(Answer):
    """Notes how much of another answer had come when its own first token did."""

    other: Answer | None = None
    beside: int = 0

    def take(self, line: str) -> None:
        """Look at the other before this first token."""
        super().take(line)
        if self.other is not None and made(self):
            self.beside, self.other = made(self.other), None


def made(answer: Answer) -> int:
    """Tokens so far, as the stream counts them."""
    return int((answer.usage or {}).get("completion_tokens", 0))


def spans_of(answer: Answer) -> list[tuple[int, int]]:
    """Start and length of each of its spans; empty until it is recorded."""
    query = "SELECT spans FROM request_records WHERE request = %s"
    found = rows(query, uuid.UUID(hex=answer.request))
    return list(unpack_spans(found[0][0])) if found else []


def test_i1_a_long_prompt_is_computed_in_chunks_beside_a_stream_that_goes_on(
    product: Product,
) -> None:
    chunks, going_on = 40, 800
    options = {"include_usage": True, "continuous_usage_stats": True}

    def body(first: int, prompt: int, tokens: int) -> dict[str, Any]:
        ids = [first, *long_prompt(prompt)]
        return {"model": MODEL.name, "prompt": ids, "max_tokens": tokens, "stream": True,
                "stream_options": options, "logit_bias": no_end(), "temperature": 0}  # fmt: skip

    async def both() -> tuple[int, Answer, Later]:
        stream = Answer(streamed=True)
        later = Later(streamed=True, other=stream)
        async with open_client(product.urls[0]) as client:
            running = asyncio.create_task(
                ask(client, product.key, body(301, 8, going_on), answer=stream)
            )
            await until(lambda: made(stream) > 4)
            before = made(stream)
            await ask(client, product.key, body(302, chunks * STEP_TOKENS, 4), answer=later)
            assert later.whole and not stream.done, "it came later and has left before"
            await running
        return before, stream, later

    before, stream, later = asyncio.run(both())
    # Each chunk lets a token by; in one piece, none would have come while it was computed.
    assert later.beside - before >= chunks // 2
    assert made(stream) == going_on
    for answer in (stream, later):
        wait_for(partial(spans_of, answer), "the record")
        spans = spans_of(answer)
        assert all(spans[INDEX[f"s5_infer.{phase}"]][1] > 0 for phase in PHASES)
    page = page_of(product, f"/requests/{later.headers['x-request-id']}")
    assert page.status_code == 200 and all(phase in page.text for phase in PHASES)
    for phase in PHASES:
        assert scraped(product, "sluice_inference_phase_seconds_count", phase=phase) >= 2


def test_i2_what_does_not_fit_together_is_preempted_and_every_block_comes_back(
    product: Product,
) -> None:
    prompts = [[number + 300, *long_prompt(39)] for number in range(AT_ONCE)]
    tokens = 60
    assert len(prompts) * (40 + tokens) > 2 * ROOM_TOKENS

    async def all_texts(at_once: bool) -> list[str]:
        async with open_client(product.urls[0]) as client:
            asked = [
                ask(client, product.key, {
                    "model": TIGHT.name, "prompt": prompt, "max_tokens": tokens, "stream": False,
                    "temperature": 0, "logit_bias": no_end(),
                })
                for prompt in prompts
            ]  # fmt: skip
            answers = await asyncio.gather(*asked) if at_once else [await one for one in asked]
        assert all(answer.whole and made(answer) == tokens for answer in answers)
        return [answer.text for answer in answers]

    def preempted() -> float:
        return scraped(product, "sluice_preemptions_total", model=TIGHT.name)

    alone, before = asyncio.run(all_texts(at_once=False)), preempted()
    assert asyncio.run(all_texts(at_once=True)) == alone
    wait_for(lambda: preempted() > before, "preemptions")
    used = "sluice_node_kv_used_ratio"
    wait_for(lambda: scraped(product, used, pool=TIGHT.pool) == 0, "all blocks")


def test_i5_each_pool_serves_its_models_by_its_own_nodes(product: Product) -> None:
    pools = {POOL: "node-1", TIGHT.pool: TIGHT.name, EMBEDS.pool: ENCODER}
    for _ in range(4):
        embedded = post(product, "/v1/embeddings", model=ENCODER, input=["abc", "d"])
        tight = post(product, COMPLETIONS, model=TIGHT.name, prompt="Hello", max_tokens=1)
        found = [one.headers["x-sluice-node"] for one in (say(product, "Hello"), tight, embedded)]
        assert found == [*pools.values()]
    for path, body in (
        ("/v1/embeddings", {"model": MODEL.name, "input": "a"}),
        (CHAT, {"model": ENCODER, "messages": [{"role": "user", "content": "a"}]}),
    ):
        refused = post(product, path, **body)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (400, "model_task_mismatch")
    told = {one["pool"]: one for one in operate(product, "GET", "fleet/pools")["data"]}
    for pool, node in pools.items():
        assert ([one["name"] for one in told[pool]["nodes"]], told[pool]["ready"]) == ([node], 1)

    def recorded() -> set[tuple[str, str]]:
        return {*rows("SELECT DISTINCT pool, node FROM request_records WHERE node <> ''")}

    wait_for(lambda: {*pools.items()} <= recorded(), "records")
    assert {node for pool, node in recorded() if pool in pools} == {*pools.values()}
