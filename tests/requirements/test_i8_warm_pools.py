"""I8: minimum counts by schedule, cold starts tracked, a signal, queue depth apart from use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from django.utils import timezone

from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.models import NodeStart
from controlplane.fleet.overview import Signal, signals
from tests.support.money import rows
from tests.support.product import Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import wait_for

DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
CREDITS = 8


@pytest.fixture(scope="module")
def product(servers: Servers) -> Iterator[Product]:
    """A gateway with one node that answers two tokens a second."""
    with running_product(servers, Plan(nodes=1, tokens_per_s=2.0, credits=CREDITS)) as running:
        yield running


@pytest.fixture(autouse=True)
def no_memory(product: Product) -> None:
    """Away with what another test left: a schedule, the signal's memory, a queue of no gateway."""
    pool_set(actor=OPERATOR, draft=PoolDraft(name="default", nodes_max=4))
    rows("DELETE FROM pool_scales")
    rows("DELETE FROM gateway_queues WHERE gateway = 'another'")


def signal(now: datetime | None = None) -> Signal:
    """That of the pool `default`."""
    found = signals(actor=OPERATOR, now=now or timezone.now())
    return next(each for each in found if each.pool.name == "default")


def test_a_schedule_keeps_more_nodes_warm_in_its_hours(product: Product) -> None:
    noon = datetime.now(UTC).replace(hour=12, minute=0)
    window = {"days": DAYS, "from": "08:00", "to": "18:00", "nodes_min": 3}
    draft = PoolDraft(name="default", nodes_min=1, nodes_max=4, warm_schedule=[window])
    pool_set(actor=OPERATOR, draft=draft)
    assert (signal(noon).nodes_min, signal(noon).desired) == (3, 3)
    assert signal(noon + timedelta(hours=8)).nodes_min == 1


def test_the_cold_start_of_a_real_node_is_kept(product: Product) -> None:
    starts = NodeStart.objects.filter(pool="default").values_list("cold_start_ms", flat=True)
    assert starts and all(50 < each < 60_000 for each in starts)


def test_requests_in_flight_and_waiting_are_told_apart(product: Product) -> None:
    wait_for(lambda: signal().load.nodes_ready == 1, "a node in the signal")
    assert signal().load.credits == CREDITS
    body = {
        "model": "sluice-5m",
        "stream": True,
        "max_tokens": 200,
        "messages": [{"role": "user", "content": "a"}],
    }
    headers = {"authorization": f"Bearer {product.key}"}
    with httpx2.Client(base_url=product.urls[0], headers=headers) as client:
        path = "/v1/chat/completions"
        with client.stream("POST", path, json=body) as one, client.stream("POST", path, json=body):
            # Kept: a reader that is let go closes its stream.
            lines = one.iter_lines()
            next(lines)
            wait_for(lambda: signal().load.in_flight == 2, "two jobs in flight")
            seen = signal()
            assert seen.load.waiting == 0
            assert seen.load.busy_share == 2 / CREDITS
            assert seen.desired == 1
            # What waits asks for nodes, and does not make the nodes that are there busier.
            queue = json.dumps({"pools": {"default": 20}})
            rows("SELECT fleet_links('another', '[]'::jsonb, %s::jsonb)", queue)
            asked = signal()
            assert asked.load.waiting == 20
            assert asked.load.busy_share == 2 / CREDITS
            assert asked.desired == 4


def test_a_pool_without_nodes_is_woken_by_its_first_request(product: Product) -> None:
    product.nodes[0].stop()
    wait_for(lambda: signal().load.nodes_ready == 0, "no node in the signal")
    rows("DELETE FROM pool_scales")
    assert signal().desired == 0
    answer = httpx2.post(
        f"{product.urls[0]}/v1/chat/completions",
        headers={"authorization": f"Bearer {product.key}"},
        json={"model": "sluice-5m", "messages": [{"role": "user", "content": "a"}]},
    )
    assert answer.status_code == 503 and int(answer.headers["retry-after"]) > 0
    try:
        wait_for(lambda: signal().desired == 1, "the wish for a node")
    finally:
        product.nodes[0].start()
        wait_for(lambda: signal().load.nodes_ready == 1, "the node again")
