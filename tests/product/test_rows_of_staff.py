"""Requirements of those who run an installation, held by processes: pages and traffic in one, a
worker with its clock, nodes of several engines, and the connector with its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from django.conf import settings
from pytest import approx

from controlplane.billing.ledger.services import seal_ledger
from controlplane.composed.demo import MODEL, POOL
from controlplane.embedded import stack
from controlplane.kernel.ids import public_id
from controlplane.kernel.money import nano_from_pico
from controlplane.slos.models import EVERYONE
from tests.product.books import bills
from tests.support.hosted import (
    BUY,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    SECRET,
    SELL,
    UPSTREAM,
    HostedProvider,
    hosted_provider,
)
from tests.support.installation import (
    add_node,
    installation,
    operate,
    organization,
    page_of,
    request_of,
    say,
)
from tests.support.loopback import HOST
from tests.support.money import rows
from tests.support.objectives import Receiver, receiver
from tests.support.product import Child, Plan, Product
from tests.support.servers import Servers
from tests.support.waiting import wait_for

HURRIED = "tests.support.hurried"
# Its processes start together, and the first test waits for all of them.
pytestmark = pytest.mark.timeout(300)
LONG = "The handbook says that doors open at nine. " * 40
# A model of a server that runs already, which is the gateway itself.
FAR = replace(MODEL, name="far", pool="far")


@pytest.fixture(scope="module")
def product(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    folder: Path = tmp_path_factory.mktemp("staff")
    with pytest.MonkeyPatch.context() as patch:
        # Messages may go to a receiver on this machine.
        patch.setenv("SLUICE_WEBHOOKS_PRIVATE", "1")
        plan = Plan(speculates=True, options=("--threads", "1"), sweeps=True, clock=HURRIED)
        with installation(servers, plan) as product:
            calls = stack.connector(HOST, product.ports)
            child = Child(calls.name, calls.argv, calls.env, folder / "connector.log")
            product.jobs.append(child)
            # The node proves its model when it starts, so that must be there.
            product.mend()
            behind = ("--engine", "remote", "--url", f"{product.urls[0]}/v1")
            names = ("--model-name", FAR.name, "--upstream-model", MODEL.name)
            add_node(product, folder, FAR, *behind, *names, SLUICE_UPSTREAM_KEY=product.key)
            product.mend()
            yield product


@pytest.fixture
def hooks() -> Iterator[Receiver]:
    with receiver() as server:
        yield server


@pytest.fixture
def provider() -> Iterator[HostedProvider]:
    with hosted_provider() as made:
        yield made


def test_i9_our_engine_and_a_server_that_is_there_say_and_charge_the_same(
    product: Product,
) -> None:
    """That server is the gateway, which has the answer from our engine."""
    here, there = (say(product, "What is a hold?", model=each) for each in (MODEL.name, FAR.name))
    assert here.status_code == there.status_code == 200, there.text
    assert there.headers["x-sluice-node"] == FAR.name
    told, *_ = here.json()["choices"]
    again, *_ = there.json()["choices"]
    assert told["message"]["content"] == again["message"]["content"]
    counts = [
        (one.json()["usage"]["prompt_tokens"], one.json()["usage"]["completion_tokens"])
        for one in (here, there)
    ]
    assert counts[0] == counts[1]
    asked = [request_of(one) for one in (here, there)]
    wait_for(lambda: {*asked} <= bills().keys(), "both bills")
    assert [bills()[one].output for one in asked] == [count for _, count in counts]
    pools = operate(product, "GET", "fleet/pools")["data"]
    engines = {node["name"]: node["engine"] for pool in pools for node in pool["nodes"]}
    assert (engines["node-1"], engines[FAR.name]) == ("compact", "other")


def test_s4_the_worksheet_is_filled_in_from_what_was_measured(product: Product) -> None:
    for number in range(4):
        assert say(product, f"{LONG}{number}").status_code == 200

    def sheet(**query: float) -> dict[str, Any]:
        text = "".join(f"&{name}={value}" for name, value in query.items())
        pools = operate(product, "GET", f"insights/capacity?days=1{text}")["data"]
        return next(dict(one) for one in pools if one["pool"] == POOL)

    def agrees() -> bool:
        ((count, prompt, cached, output),) = rows(
            "SELECT count(*), sum(prompt_tokens)::float8, sum(cached_tokens)::float8,"
            " sum(output_tokens)::float8 FROM request_records"
            " WHERE pool = %s AND prompt_tokens > 0",
            POOL,
        )
        fields = sheet()["fields"]
        measured = [fields[name] for name in ("in", "out", "cached")] if fields else []
        return measured == approx([prompt / count, output / count, 100 * cached / prompt])

    wait_for(agrees, "the figures of all that ran")
    pool = sheet()
    fields, filled = pool["fields"], pool["sheet"]
    assert pool["nodes_ready"] == 1 and fields["rate"] > 0 and fields["batch"] >= 1
    assert {use["resource"] for use in filled["uses"]} == {"compute", "slots", "kv_cache"}
    assert filled["gpu_hours_day"] == 24 * filled["nodes_needed"]
    first = filled["uses"][0]
    assert 0 < first["per_s_max"] == approx(filled["per_s_max"])
    crowded = sheet(rate=100 * filled["per_s_max"])["sheet"]
    assert crowded["uses"][0]["used"] > 1 and crowded["nodes_needed"] > filled["nodes_needed"]
    page = page_of(product, f"/insights/capacity?days=1&pool={POOL}")
    assert page.status_code == 200 and all(
        words in page.text for words in ("Bottleneck", "GPU-hours per region", "local")
    )


def test_s7_four_ways_are_measured_by_the_command_and_the_map_is_a_file(product: Product) -> None:
    words = ("--large", MODEL.name, "--small", FAR.name, "--requests", "2", "--output-tokens", "6")
    done = subprocess.run(
        [sys.executable, "manage.py", "sluice", "compare", "--url", product.urls[0], *words],
        env={**os.environ, "SLUICE_API_KEY": product.key}, cwd=settings.BASE_DIR,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    of_organization = f"insights/organizations/{organization()}"
    kept, *_ = operate(product, "GET", f"{of_organization}/comparisons")["data"]
    ways = {way["name"]: way for way in kept["ways"]}
    assert [*ways] == ["baseline", "gateway", "streaming", "whole"]
    for way in ways.values():
        assert (way["requests"], way["failed"]) == (2, 0) and 0 < way["output_tokens"] <= 12
        assert way["label"] in done.stdout and 0 < way["ttft_p50_us"] <= way["latency_p50_us"]
        assert way["charged_nano"] > 0
    assert ways["streaming"]["prompt_tokens"] < 0.6 * ways["baseline"]["prompt_tokens"]
    assert ways["baseline"]["cached_tokens"] == 0 < ways["whole"]["cached_tokens"]
    assert ways["baseline"]["label"] in page_of(product, "/insights/comparison").text
    stages = operate(product, "GET", f"{of_organization}/stage-map?days=1")["data"]
    assert sum(one["requests"] > 0 and not one["layer"] for one in stages) >= 7
    text = page_of(product, "/insights/stages.md?days=1")
    assert text.status_code == 200 and all(one["what"] in text.text for one in stages)
    assert page_of(product, "/insights/stages.pdf?days=1").content.startswith(b"%PDF-")


def test_c8_an_alert_says_who_owns_its_stage_and_has_its_duties(
    product: Product, hooks: Receiver
) -> None:
    owner = {"team": "router", "email": "router@example.org", "budget_us": 1_000,
             "runbook": "s4-route"}  # fmt: skip
    operate(product, "PUT", "slos/stages/s4_route", owner)
    today = datetime.now(UTC).date().isoformat()
    for duty, team in (("routing", "planners"), ("telemetry", "watchers"), ("limits", "gate")):
        path = f"slos/stages/s4_route/duties/{duty}"
        operate(product, "PUT", path, {"team": team, "begins": today})
    everyone = f"slos/organizations/{public_id('org', EVERYONE)}"
    operate(product, "POST", f"{everyone}/channels", {"kind": "webhook", "address": hooks.url})
    # Nothing is as fast.
    promise = {"name": "at once", "indicator": "stage:s4_route", "threshold": 1, "team": "router",
               "target_ppm": 990_000, "rules": ["page_quick"]}  # fmt: skip
    objective = operate(product, "POST", f"{everyone}/objectives", promise)["id"]

    def told() -> bool:
        assert say(product, "Hello", max_tokens=1).status_code == 200
        return bool(hooks.received)

    wait_for(told, "a message")
    message = json.loads(hooks.received[0].body)
    assert (message["event"], message["owner"]["team"]) == ("alert.firing", "router")
    assert message["runbook"].endswith("/runbooks/s4-route")
    for path in ("/slos", f"/slos/{objective}"):
        alerts = " ".join(page_of(product, path).text.partition('id="alerts-title"')[2].split())
        assert "routing of s4_route: planners" in alerts
        assert "telemetry of s4_route: watchers" in alerts
    operate(product, "DELETE", f"{everyone}/objectives/{objective}")


def test_c10_a_connection_is_made_used_counted_and_switched_off(
    product: Product, provider: HostedProvider
) -> None:
    place = {"name": "loop", "kind": "other", "url": provider.url, "region": "eu"}
    connection = operate(product, "POST", "connections", place)["id"]
    key = operate(product, "POST", f"connections/{connection}/keys", {"secret": SECRET})
    assert SECRET not in json.dumps(key) and key["shown"].endswith(SECRET[-4:])
    rates = [{name: getattr(each, name) for name in each.__struct_fields__} for each in (BUY, SELL)]
    model = {"upstream": UPSTREAM, "model": "theirs", "context_window": 4_096, "output_max": 64,
             "purchase": rates[0], "sale": rates[1]}  # fmt: skip
    whole = operate(product, "PUT", f"connections/{connection}/models", {"models": [model]})
    assert SECRET not in json.dumps(whole) and whole["models"][0]["enabled"]

    def asked() -> httpx2.Response:
        return say(product, "Hello", model="theirs", max_tokens=4)

    wait_for(lambda: asked().status_code == 200, "the connector")
    answer = asked()
    assert answer.json()["choices"][0]["message"]["content"] == "Good day."
    wait_for(lambda: request_of(answer) in bills(), "the bill")
    pico = PROMPT_TOKENS * SELL.input_pico + OUTPUT_TOKENS * SELL.output_pico
    assert bills()[request_of(answer)].nano == nano_from_pico(pico)

    def spent() -> list[dict[str, Any]]:
        seal_ledger(datetime.now(UTC))
        return list(operate(product, "GET", f"connections/{connection}/spend")["data"])

    wait_for(spent, "what it cost to buy")
    ((count,),) = rows("SELECT count(*) FROM transfers WHERE kind = 'settle' AND model = 'theirs'")
    pico = PROMPT_TOKENS * BUY.input_pico + OUTPUT_TOKENS * BUY.output_pico
    assert sum(line["ours_nano"] for line in spent()) == nano_from_pico(pico * count)
    page = page_of(product, "/connections")
    assert page.status_code == 200 and "loop" in page.text and SECRET not in page.text
    operate(product, "PUT", f"connections/{connection}/enabled", {"enabled": False})
    wait_for(lambda: asked().status_code >= 400, "the end of it")
