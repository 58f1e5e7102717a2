"""One request on the real product: all seven stages, its record, its money, its bill's proof."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.test import Client

from controlplane.composed.demo import MODEL
from controlplane.kernel.ids import public_id, public_request
from controlplane.kernel.spans import ABSENT, SPANS, STAGES, unpack_spans
from tests.product.books import bills, kinds, open_holds
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.money import rows
from tests.support.people import demo_admin
from tests.support.product import Plan, Product, demo_key, running_product
from tests.support.servers import Servers
from tests.support.waiting import until, wait_for

RECORD_S_MAX = 10.0
LAYERS_MIN = 14
TOKENS_PER_S = 200.0
CHAT = "/v1/chat/completions"
RECORD = "SELECT spans, output_tokens, cost_nano, status, stream FROM request_records"


@pytest.fixture(scope="module")
def running(servers: Servers) -> Iterator[Product]:
    with running_product(servers, Plan(tokens_per_s=TOKENS_PER_S)) as product:
        yield product


@pytest.fixture
def product(running: Product) -> Iterator[Product]:
    yield running
    running.print_logs()


async def ask_one(product: Product, *, stream: bool, tokens: int = 10) -> Answer:
    async with open_client(product.urls[0]) as client:
        return await ask(client, product.key, make_body(tokens=tokens, stream=stream))


def record_of(answer: Answer) -> list[tuple[bytes, int, int, int, bool]]:
    return rows(f"{RECORD} WHERE request = %s", uuid.UUID(hex=answer.request))


@pytest.mark.parametrize("stream", [True, False])
async def test_a_chat_is_answered_recorded_and_charged(product: Product, stream: bool) -> None:
    body = {
        "model": MODEL.name,
        "messages": [{"role": "user", "content": "Which hotel is near the harbour?"}],
        "max_tokens": 12,
        "stream": stream,
    }
    async with open_client(product.urls[0]) as client:
        answer = await ask(client, product.key, body, path=CHAT)
    assert answer.whole, answer
    await until(lambda: bool(record_of(answer)), within_s=RECORD_S_MAX)
    ((_, output_tokens, cost_nano, status, streamed),) = record_of(answer)
    bill = bills()[answer.request]
    assert (bill.charges, bill.output, bill.nano) == (1, output_tokens, cost_nano)
    assert (output_tokens, status, streamed) == (12, 200, stream)
    assert kinds(answer.request) == ["hold", "settle"]
    assert open_holds() == 0


async def test_client_gateway_and_ledger_count_the_same(product: Product) -> None:
    for stream in (True, False):
        answer = await ask_one(product, stream=stream)
        assert answer.usage is not None
        told = answer.usage["completion_tokens"]
        assert answer.tokens == told == bills()[answer.request].output == 10


async def test_p1_seven_stages_in_order_with_times(product: Product) -> None:
    """P1: the seven stages in this order, each a span with layers, and network time apart."""
    answer = await ask_one(product, stream=False)
    stages = re.findall(r"(\w+);dur=([\d.]+)", answer.headers["server-timing"])
    assert [name for name, _ in stages] == [name for name, _, _ in STAGES]
    await until(lambda: bool(record_of(answer)), within_s=RECORD_S_MAX)
    spans = unpack_spans(record_of(answer)[0][0])
    starts = {span.name: start for span, (start, _) in zip(SPANS, spans, strict=True)}
    began = [starts[name] for name, _, _ in STAGES]
    assert ABSENT not in began and began == sorted(began)
    layers = [name for name, start in starts.items() if "." in name and start != ABSENT]
    assert len(layers) >= LAYERS_MIN, layers
    assert {"s5_infer.network", "s5_infer.queue", "s5_infer.prefill", "s5_infer.decode"} <= {
        *layers
    }


async def test_layers_have_durations(product: Product) -> None:
    answer = await ask_one(product, stream=True)
    await until(lambda: bool(record_of(answer)), within_s=RECORD_S_MAX)
    spans = unpack_spans(record_of(answer)[0][0])
    timed = [
        span.name
        for span, (start, duration) in zip(SPANS, spans, strict=True)
        if span.layer and start != ABSENT and duration > 0
    ]
    assert len(timed) >= LAYERS_MIN, timed


async def test_c4_the_ledger_proves_itself(product: Product) -> None:
    """C4: each request is on the ledger once, and the command that checks it all exits 0."""
    answers = [await ask_one(product, stream=stream) for stream in (True, False)]
    booked = bills()
    assert all(booked[answer.request].charges == 1 for answer in answers)
    verified = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "manage.py", "verify_ledger", "--strict"],
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert verified.stdout.count(" ok: ") == 7


def test_a_request_has_one_id_in_header_page_api_and_file(product: Product) -> None:
    answer = asyncio.run(ask_one(product, stream=True))
    named = answer.headers["x-request-id"]
    assert named == public_request(uuid.UUID(answer.request).bytes)
    client = demo_admin()
    wait_for(lambda: client.get(f"/requests/{named}").status_code == 200, "the request's row")
    assert named in client.get(f"/requests/{named}").content.decode()
    assert f'"{named}"' in b"".join(client.get("/requests.csv?range=15m")).decode()
    operator = Client(headers={"Authorization": f"Bearer {settings.OPERATOR_TOKEN}"})
    organization = public_id("org", demo_key().organization_id)
    path = f"/api/billing/organizations/{organization}/requests/{named}/reversals"
    made = operator.post(path, {"nano": 1, "reason": "one id"}, "application/json")
    assert (made.status_code, made.json().get("reverses")) == (201, named)
