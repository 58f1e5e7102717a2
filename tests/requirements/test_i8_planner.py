"""I8: nodes from objectives, measured rates and last week's traffic, with reasons; followed by
autoscalers and agents where the pool says so; replayed beside fixed fleets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from controlplane.composed.demo import POOL
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.insights.planning import DAY_S, STEP_S
from controlplane.slos.models import EVERYONE
from controlplane.slos.services import objective_create
from tests.product.traffic import ask, make_body, open_client
from tests.support.hosts import MODEL, SERVES_S, Staff, agent_child
from tests.support.objectives import draft
from tests.support.product import Child, Plan, Product, running_product
from tests.support.rates import seed_rates
from tests.support.servers import Servers
from tests.support.waiting import wait_for

HURRIED = "tests.support.hurried"
NODES_MAX, NODES_NEEDED = 4, 3
AT_ONCE = 4
PAST_DAYS, PEAK_S = 8, 8 * STEP_S
DEPLOYED = {"engine": "echo", "arguments": {"tokens-per-s": "200"}}


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    """A gateway with pages and API, a worker that plans each second, and no node."""
    pages = {"SLUICE_ROLE": "all"}
    plan = Plan(nodes=0, gateway_env=lambda number: pages, sweeps=True, clock=HURRIED)
    with running_product(servers, plan) as running:
        yield running


@pytest.fixture
def staff(product: Product) -> Staff:
    return Staff(product.urls[0])


@pytest.fixture
def agent(staff: Staff, tmp_path: Path) -> Iterator[Child]:
    """The agent of one host."""
    child = agent_child(staff, tmp_path)
    child.start()
    yield child
    status = child.stop()
    print(child.log)
    assert status == 0


def _drive(product: Product, count: int) -> None:
    async def asking() -> None:
        async with open_client(product.urls[0]) as client:
            body = make_body(tokens=20, stream=True)
            found = await asyncio.gather(*(ask(client, product.key, body) for _ in range(count)))
            assert all(answer.whole for answer in found)

    asyncio.run(asking())


def _plan(staff: Staff) -> dict[str, Any]:
    status, told = staff("GET", "insights/plan")
    assert status == 200, told
    return next(one for one in told["data"] if one["pool"] == POOL)


def _measured(staff: Staff) -> int:
    _, told = staff("GET", "insights/capacity")
    return next(int(one["requests"]) for one in told["data"] if one["pool"] == POOL)


def _pool(staff: Staff) -> dict[str, Any]:
    _, told = staff("GET", "fleet/pools")
    return next(one for one in told["data"] if one["pool"] == POOL)


def _compares(replayed: list[dict[str, Any]]) -> None:
    """A peak each day: what a fleet for it costs all day, and one for the mean misses."""
    fleets = {str(one["name"]).partition(":")[0]: one for one in replayed}
    planned, peak = fleets["the plan"], fleets["fixed, for the peak"]
    assert {"load alone", "fixed, as now"} <= set(fleets)
    assert planned["node_hours"] < peak["node_hours"] and peak["late"] == 0
    assert planned["late"] < fleets["fixed, for the mean"]["late"] < planned["requests"]


def test_a_pool_gets_the_nodes_that_hold_its_objectives_at_last_weeks_peak(
    product: Product, staff: Staff, agent: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    promise = draft(name="first token", indicator="ttft", threshold=500_000, target_ppm=950_000)
    objective_create(actor=OPERATOR, organization=EVERYONE, draft=promise)
    assert staff("PUT", f"fleet/pools/{POOL}", {"nodes_max": NODES_MAX})[0] == 200
    staff.deploy("planned", **DEPLOYED)
    wait_for(lambda: staff.deployment("planned")["state"] == "serving", "a replica", SERVES_S)
    wait_for(lambda: product.readiness().get("ready"), "the gateway")
    for _ in range(5):
        _drive(product, AT_ONCE)
    wait_for(lambda: _measured(staff) == 5 * AT_ONCE, "all of them in the figures")
    told = _plan(staff)
    held = {bound["what"] for bound in told["bounds"]}
    assert {"ttft", "slots", "prefill", "decode"} <= held
    assert told["mode"] == "advice" and told["nodes"] <= 1

    # Each day more comes from now on than one node holds, and than two do.
    now_s = int(time.time()) // STEP_S * STEP_S
    peak = (NODES_NEEDED - 0.5) * told["per_node_s"]
    for days in range(1, PAST_DAYS + 1):
        then = now_s - days * DAY_S + STEP_S
        seed_rates(MODEL, dict.fromkeys(range(then, then + PEAK_S, STEP_S), peak), step_s=STEP_S)
    told = _plan(staff)
    assert told["nodes"] == NODES_NEEDED, told
    assert "as last week" in told["reasons"][0]
    assert f": {NODES_NEEDED} nodes" in told["reasons"][1]
    wait_for(lambda: _pool(staff)["planned"] == NODES_NEEDED, "the job's plan")
    _compares(told["replayed"])
    # Advice changes nothing.
    assert _pool(staff)["desired"] <= 1 and staff.deployment("planned")["ready"] == 1

    assert staff("PUT", f"fleet/pools/{POOL}", {"plan_mode": "signal"})[0] == 200
    status, signal = staff("GET", f"fleet/pools/{POOL}/desired")
    assert (status, signal["desired"]) == (200, NODES_NEEDED)
    assert staff.deployment("planned")["wanted"] == 1

    assert staff("PUT", f"fleet/pools/{POOL}", {"plan_mode": "agents"})[0] == 200
    wait_for(lambda: staff.deployment("planned")["ready"] == NODES_NEEDED, "its nodes", SERVES_S)
    # The most that staff allow holds for a plan, too.
    assert staff("PUT", f"fleet/pools/{POOL}", {"nodes_max": 2})[0] == 200
    wait_for(lambda: staff.deployment("planned")["ready"] == 2, "fewer nodes", SERVES_S)

    call_command("plan", POOL, "--replay", "1")
    assert "node-hours" in capsys.readouterr().out
    staff("DELETE", "deployments/planned")
    wait_for(lambda: not staff.deployment("planned"), "the end of the deployment", SERVES_S)
