"""P13: files and batches by the official client, on idle nodes, each line once and at its price."""

from __future__ import annotations

import asyncio
import json
import signal
import time
import uuid
from collections.abc import Iterator
from typing import Any, Literal

import httpx2
import openai
import pytest
from openai import AsyncOpenAI
from openai.types import Batch

from controlplane.composed.demo import PRICE
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.price import Price, TokenCounts, charge_nano, scaled
from controlplane.tenants.keys import KeyTerms, apikey_create
from controlplane.tenants.models import Organization
from controlplane.tenants.services import project_create
from tests.product.books import open_holds
from tests.product.traffic import make_body
from tests.support.described import check_described
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.product import Plan, Product, running_product, verify_ledger
from tests.support.servers import Servers

PATH: Literal["/v1/completions"] = "/v1/completions"
TOKENS = 6
# What PostgreSQL was asked is done by then.
SETTLED_S = 0.1
DONE_S_MAX = 60.0
OVER = ("completed", "failed", "expired", "cancelled")
HALF = PRICE.batch_permille


def lines_of(count: int, *, tokens: int = TOKENS, **changes: Any) -> list[dict[str, Any]]:
    body = make_body(tokens=tokens, stream=False)
    line = {"method": "POST", "url": PATH, "body": body} | changes
    return [{"custom_id": f"line-{number}", **line} for number in range(count)]


def packed(lines: list[Any]) -> bytes:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return "\n".join(texts).encode()


@pytest.fixture
def product(servers: Servers, request: pytest.FixtureRequest) -> Iterator[Product]:
    with running_product(servers, getattr(request, "param", None)) as product:
        yield product


def planned(plan: Plan) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("product", [plan], indirect=True, ids=["planned"])


def client_of(product: Product, number: int = 0) -> AsyncOpenAI:
    return AsyncOpenAI(
        base_url=f"{product.urls[number]}/v1", api_key=product.key, max_retries=0, timeout=30
    )


async def begin(client: AsyncOpenAI, lines: list[Any], **more: Any) -> Batch:
    file = await client.files.create(file=("in.jsonl", packed(lines)), purpose="batch")
    return await client.batches.create(
        input_file_id=file.id, endpoint=PATH, completion_window="24h", **more
    )


async def ended(client: AsyncOpenAI, batch: Batch, seconds: float = DONE_S_MAX) -> Batch:
    by = time.monotonic() + seconds
    while batch.status not in OVER:
        assert time.monotonic() < by, batch
        await asyncio.sleep(0.1)
        batch = await client.batches.retrieve(batch.id)
    return batch


async def results(client: AsyncOpenAI, file: str | None) -> list[dict[str, Any]]:
    if file is None:
        return []
    text = (await client.files.content(file)).text
    return [json.loads(line) for line in text.splitlines()]


def charges() -> dict[str, int]:
    """Charges by request, and how many lines of the ledger each has."""
    found = rows(
        "SELECT request, amount FROM transfers WHERE kind IN ('settle', 'late', 'overage')"
    )
    assert len({request for request, _ in found}) == len(found)
    return {uuid.UUID(str(request)).hex: amount for request, amount in found}


async def test_a_batch_runs_and_its_files_are_read(product: Product) -> None:
    lines = lines_of(20)
    lines[7]["body"] = {**lines[7]["body"], "max_tokens": -1}
    async with client_of(product) as client:
        batch = await begin(client, lines, metadata={"job": "nightly"})
        assert (batch.object, batch.endpoint, batch.completion_window) == ("batch", PATH, "24h")
        batch = await ended(client, batch)
        assert batch.status == "completed", batch
        assert batch.metadata == {"job": "nightly"}
        assert batch.request_counts is not None
        counts = batch.request_counts
        assert (counts.total, counts.completed, counts.failed) == (20, 19, 1)
        answered = await results(client, batch.output_file_id)
        assert [line["custom_id"] for line in answered] == [
            f"line-{number}" for number in range(20) if number != 7
        ]
        for line in answered:
            assert line["error"] is None
            assert line["response"]["status_code"] == 200
            assert line["response"]["body"]["usage"]["completion_tokens"] == TOKENS
        (refused,) = await results(client, batch.error_file_id)
        assert refused["custom_id"] == "line-7"
        assert refused["response"]["status_code"] == 400
        assert refused["response"]["body"]["error"]["param"] == "max_tokens"
        listed = [each.id async for each in client.batches.list()]
        assert listed == [batch.id]
        for path, shape in (
            ("/v1/batches", "BatchList"),
            (f"/v1/batches/{batch.id}", "BatchObject"),
            ("/v1/files", "FileList"),
            (f"/v1/files/{batch.input_file_id}", "FileObject"),
        ):
            headers = {"authorization": f"Bearer {product.key}"}
            told = httpx2.get(f"{product.urls[0]}{path}", headers=headers)
            check_described(told.json(), shape)
        purposes = [each.purpose async for each in client.files.list()]
        assert sorted(purposes) == ["batch", "batch_output", "batch_output"]
    charged = await orm(charges)()
    assert {line["response"]["request_id"].removeprefix("req_") for line in answered} == set(
        charged
    )
    await verify_ledger()


async def test_half_the_price_to_the_nano(product: Product) -> None:
    async with client_of(product) as client:
        batch = await ended(client, await begin(client, lines_of(5)))
        (one, *_) = await results(client, batch.output_file_id)
    found = await orm(rows)(
        "SELECT request, amount, price_version, input_pico, cached_pico, output_pico, uncached,"
        " cached, output FROM transfers WHERE kind = 'settle'"
    )
    assert len(found) == 5
    assert HALF == 500
    names = ("version", "input_pico", "cached_pico", "output_pico")
    listed = (1, PRICE.input_pico, PRICE.cached_pico, PRICE.output_pico)
    half = scaled(Price(**dict(zip(names, listed, strict=True))), HALF)
    for _, amount, *price, uncached, cached, output in found:
        assert Price(**dict(zip(names, price, strict=True))) == half
        counts = TokenCounts(uncached=uncached, cached=cached, output=output)
        assert amount == charge_nano(half, counts)
    usage = one["response"]["body"]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (8, TOKENS)
    await verify_ledger()


@planned(Plan(tokens_per_s=15, credits=8))
async def test_a_killed_gateway_loses_and_doubles_nothing(product: Product) -> None:
    count = 60
    async with client_of(product) as client:
        batch = await begin(client, lines_of(count))
        while batch.request_counts is None or batch.request_counts.completed < 8:
            await asyncio.sleep(0.1)
            batch = await client.batches.retrieve(batch.id)
        assert batch.status == "in_progress"
    # Its lines begin and end together: stopped between two of them, it goes on for a moment.
    product.gateways[0].signal(signal.SIGSTOP)
    await asyncio.sleep(SETTLED_S)
    while not await orm(running)():
        product.gateways[0].signal(signal.SIGCONT)
        await asyncio.sleep(SETTLED_S)
        product.gateways[0].signal(signal.SIGSTOP)
        await asyncio.sleep(SETTLED_S)
    product.gateways[0].kill()
    assert await orm(running)()
    product.mend()
    async with client_of(product) as client:
        batch = await ended(client, batch, 110)
        assert batch.status == "completed", batch
        answered = await results(client, batch.output_file_id)
    named = [line["custom_id"] for line in answered]
    assert named == [f"line-{number}" for number in range(count)]
    assert batch.error_file_id is None
    # Each line has one charge, whichever of its runs it is of.
    charged = await orm(charges)()
    assert len(charged) == count
    told = {line["response"]["request_id"].removeprefix("req_") for line in answered}
    assert told == set(charged)
    assert open_holds() == 0
    await verify_ledger()


@planned(Plan(tokens_per_s=20, credits=4))
async def test_a_cancelled_batch_ends_with_what_was_done(product: Product) -> None:
    async with client_of(product) as client:
        batch = await begin(client, lines_of(40))
        while batch.request_counts is None or not batch.request_counts.completed:
            await asyncio.sleep(0.1)
            batch = await client.batches.retrieve(batch.id)
        cancelled = await client.batches.cancel(batch.id)
        assert cancelled.status == "cancelling"
        assert cancelled.cancelling_at is not None
        batch = await ended(client, batch)
        assert batch.status == "cancelled"
        answered = await results(client, batch.output_file_id)
        refused = await results(client, batch.error_file_id)
        assert len(answered) + len(refused) == 40
        assert 0 < len(answered) < 40
        assert {line["error"]["code"] for line in refused} == {"batch_cancelled"}
        with pytest.raises(openai.APIStatusError) as caught:
            done = await ended(client, await begin(client, lines_of(1)))
            await client.batches.cancel(done.id)
        assert caught.value.status_code == 409
    assert len(await orm(charges)()) == len(answered) + 1
    await verify_ledger()


@planned(Plan(started=False))
async def test_lines_that_nobody_ran_in_time_expire(product: Product) -> None:
    product.gateways[0].start()
    await asyncio.to_thread(product.wait_ready, 0)
    async with client_of(product) as client:
        batch = await begin(client, lines_of(3))
        while batch.status == "validating":
            await asyncio.sleep(0.1)
            batch = await client.batches.retrieve(batch.id)
        assert batch.expires_at is not None
        assert batch.expires_at - batch.created_at == 86_400
        await orm(age)()
        batch = await ended(client, batch)
        assert batch.status == "expired"
        assert batch.output_file_id is None
        refused = await results(client, batch.error_file_id)
        assert [line["custom_id"] for line in refused] == ["line-0", "line-1", "line-2"]
        assert {line["error"]["code"] for line in refused} == {"batch_expired"}
        assert all(line["response"] is None for line in refused)


def other_key(endpoints: list[str] | None = None) -> str:
    """The secret of a key in another project of the organization."""
    project = project_create(
        actor=OPERATOR, organization=Organization.objects.get(), name=uuid.uuid4().hex
    )
    terms = KeyTerms(endpoints=endpoints)
    return apikey_create(actor=OPERATOR, project=project, label="other", terms=terms).secret


def age() -> None:
    """Every batch's day is over."""
    rows("UPDATE batches SET expires_at = batches_now()")


def running() -> int:
    """Lines that a gateway is at."""
    ((count,),) = rows("SELECT count(*) FROM batch_lines WHERE gateway IS NOT NULL")
    return int(count)


async def test_a_file_that_cannot_be_run_says_why_by_line(product: Product) -> None:
    good = lines_of(1)[0]
    lines: list[Any] = [
        good,
        "{broken",
        {**good, "custom_id": "other", "url": "/v1/embeddings"},
        good,
        {**good, "custom_id": "get", "method": "GET"},
        {**good, "custom_id": "streams", "body": {**good["body"], "stream": True}},
        {"custom_id": "bare"},
    ]
    async with client_of(product) as client:
        batch = await ended(client, await begin(client, lines))
        assert batch.status == "failed"
        assert batch.failed_at is not None
        assert batch.errors is not None
        found = [(error.line, error.code, error.param) for error in batch.errors.data or []]
        assert found == [
            (2, "invalid_json_line", None),
            (3, "invalid_url", "url"),
            (4, "duplicate_custom_id", "custom_id"),
            (5, "invalid_method", "method"),
            (6, "invalid_request", "body.stream"),
            (7, "invalid_method", "method"),
        ]
        blank = await ended(client, await begin(client, ["\n\n"]))
        assert [error.code for error in (blank.errors and blank.errors.data) or []] == [
            "empty_file"
        ]
    assert not await orm(charges)()


async def listed(
    client: AsyncOpenAI, key: str, refused: type[openai.APIStatusError] | None = None
) -> None:
    """Return once the gateway has read of a new key."""
    for _ in range(100):
        try:
            await client.with_options(api_key=key).files.list()
            return
        except openai.AuthenticationError:
            await asyncio.sleep(0.1)
        except openai.APIStatusError as error:
            assert refused is not None
            assert isinstance(error, refused)
            return
    raise AssertionError("the key stays unknown")


async def test_files_are_kept_listed_deleted_and_ones_own(product: Product) -> None:
    data = packed(lines_of(3000)) + b"\n"
    async with client_of(product) as client:
        file = await client.files.create(
            file=("a.jsonl", data),
            purpose="batch",
        )
        assert (file.bytes, file.filename, file.purpose) == (len(data), "a.jsonl", "batch")
        assert file.expires_at == file.created_at + 30 * 86_400
        assert (await client.files.content(file.id)).content == data
        assert (await client.files.retrieve(file.id)).id == file.id
        other = await client.files.create(file=("b.jsonl", data[:100]), purpose="batch")
        page = await client.files.list(limit=1, order="asc")
        assert [each.id for each in page.data] == [file.id]
        assert page.has_more
        assert [each.id async for each in client.files.list(limit=1)] == [other.id, file.id]
        assert (await client.files.delete(file.id)).deleted
        for ask in (client.files.retrieve, client.files.content, client.files.delete):
            with pytest.raises(openai.NotFoundError):
                await ask(file.id)
        with pytest.raises(openai.NotFoundError):
            await client.batches.create(
                input_file_id=file.id, endpoint=PATH, completion_window="24h"
            )
        with pytest.raises(openai.BadRequestError) as caught:
            await client.files.create(file=("c.jsonl", data), purpose="fine-tune")
        assert caught.value.param == "purpose"
        stranger = await orm(other_key)()
        await listed(client, stranger)
        theirs = client.with_options(api_key=stranger)
        with pytest.raises(openai.NotFoundError):
            await theirs.files.content(other.id)
        assert [each async for each in theirs.files.list()] == []
        narrow = await orm(other_key)(endpoints=["chat"])
        await listed(client, narrow, openai.PermissionDeniedError)
