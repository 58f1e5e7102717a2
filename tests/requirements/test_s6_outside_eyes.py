"""S6: Prometheus, traces, logs and probes of the real product tell what happened, and no secret."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from django.conf import settings
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from controlplane.bridge.metrics.page import SERIES_MAX
from controlplane.composed.demo import MODEL
from controlplane.kernel.spans import SPANS, STAGES
from tests.product.traffic import PROMPT_TOKENS, Answer, ask, make_body, open_client
from tests.support.collector import Collector, Taken, running_collector
from tests.support.dashboards import asked_for, offered
from tests.support.people import demo_admin
from tests.support.product import Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import wait_for

STREAMED, WHOLE, TOKENS = 4, 3, 5
ANSWERED = STREAMED + WHOLE
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
UNSAMPLED = "5bf92f3577b34da6a3ce929d0e0e4736"
PROMPT_SECRET, HEADER_SECRET = "umbrella-orchard-prompt", "umbrella-orchard-header"
KEY_SECRET = "umbrellaorchardkey"
SERVER = 2
TOKEN = {"authorization": f"Bearer {settings.METRICS_TOKEN}"}

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def collector() -> Iterator[Collector]:
    with running_collector() as collector:
        yield collector


@pytest.fixture
def product(servers: Servers, collector: Collector) -> Iterator[Product]:
    def env(_: int) -> dict[str, str]:
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_TRACES_SAMPLER_ARG": "1",
            "OTEL_SERVICE_NAME": "gateway-under-test",
            "SLUICE_LOG_LEVEL": "DEBUG",
            "SLUICE_LOG_FORMAT": "json",
        }

    with running_product(servers, Plan(tokens_per_s=50.0, gateway_env=env)) as product:
        yield product


def read(text: str) -> Figures:
    """Every sample of a page by its name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(figures: Figures, name: str, **labels: str) -> float:
    """The sum of a family over all labels that are not given."""
    wanted = set(labels.items())
    return sum(value for (each, own), value in figures.items() if each == name and wanted <= own)


def page(product: Product) -> str:
    """The gateway's page, as Prometheus gets it."""
    answer = httpx2.get(f"{product.urls[0]}/metrics", headers=TOKEN)
    assert answer.status_code == 200, answer.text
    assert len(answer.text.splitlines()) < SERIES_MAX
    return answer.text


def scrape(product: Product) -> Figures:
    """Its figures."""
    return read(page(product))


async def _traffic(product: Product) -> list[Answer]:
    async with open_client(product.urls[0]) as client:
        bodies = [make_body(tokens=TOKENS, stream=n < STREAMED) for n in range(ANSWERED)]
        found = await asyncio.gather(*(ask(client, product.key, body) for body in bodies))
        await ask(client, product.key, {**make_body(), "model": "nothing-like-it"})
        return found


async def _with_secrets(product: Product) -> None:
    """Secrets in prompt, key and headers, in requests that are served and in ones that fail."""
    url = f"{product.urls[0]}/v1/chat/completions"
    messages = [{"role": "user", "content": PROMPT_SECRET}]
    body = {"model": MODEL.name, "messages": messages, "max_tokens": 2}
    extra = {"x-anything": HEADER_SECRET, "server-timing": f'a;dur=1;desc="{HEADER_SECRET}"'}
    headers = {"authorization": f"Bearer {product.key}"}
    # A link that broke may come back for some seconds before its streams end.
    async with httpx2.AsyncClient(headers=headers, timeout=30.0) as client:
        for changes in ({}, {"stream": True}, {"model": PROMPT_SECRET}, {"max_tokens": -1}):
            await client.post(url, json={**body, **changes}, headers=extra)
        await client.post(url, content=f'{{"messages": {PROMPT_SECRET}', headers=extra)
        for key in (f"sk_sluice_{KEY_SECRET}", KEY_SECRET):
            await client.post(url, json=body, headers={"authorization": f"Bearer {key}"})
            await client.get(f"{product.urls[0]}/metrics", headers={"authorization": key})
        await client.get(f"{product.urls[0]}/v1/nothing?key={KEY_SECRET}")
        # The node goes away with a job on it, which is worth a line or two.
        body |= {"stream": True, "max_tokens": 400}
        async with client.stream("POST", url, json=body, headers=extra) as answer:
            async for _ in answer.aiter_lines():
                if product.nodes[0].alive:
                    product.nodes[0].kill()


def test_figures_traces_logs_and_probes_agree(product: Product, collector: Collector) -> None:
    answers = asyncio.run(_traffic(product))
    assert all(answer.whole for answer in answers)
    _check_figures(scrape(product), answers)
    _check_access(product)
    _check_probes(product)
    _check_traces(collector, answers)
    _check_callers_trace(product, collector)
    _check_logs(product)
    _check_dashboards(product)
    figures = scrape(product)
    assert total(figures, "sluice_traces_exported_total") > ANSWERED
    assert total(figures, "sluice_traces_dropped_total") == 0


def _check_figures(figures: Figures, answers: list[Answer]) -> None:
    assert total(figures, "sluice_requests_total", status="2xx") == ANSWERED
    assert total(figures, "sluice_requests_total", status="4xx", model="other") == 1
    assert total(figures, "sluice_refusals_total", code="model_not_found") == 1
    told = [answer.usage or {} for answer in answers]
    output = sum(each["completion_tokens"] for each in told)
    cached = sum(each["prompt_tokens_details"]["cached_tokens"] for each in told)
    assert output == ANSWERED * TOKENS
    assert total(figures, "sluice_output_tokens_total", model=MODEL.name) == output
    assert total(figures, "sluice_cached_tokens_total") == cached
    assert total(figures, "sluice_uncached_tokens_total") == ANSWERED * PROMPT_TOKENS - cached
    assert total(figures, "sluice_charged_nano_usd_total") > 0
    assert total(figures, "sluice_finishes_total", reason="length") == ANSWERED
    for stage, _, _ in STAGES:
        count = total(figures, "sluice_stage_duration_seconds_count", stage=stage)
        assert count >= ANSWERED, stage
    standard = {"gen_ai_operation_name": "text_completion", "gen_ai_request_model": MODEL.name}
    for name in ("request_duration", "time_to_first_token"):
        name = f"gen_ai_server_{name}_seconds"
        assert total(figures, f"{name}_count", **standard) == ANSWERED, name
        assert total(figures, f"{name}_bucket", le="+Inf", **standard) == ANSWERED
    # Where a busy machine delivers all tokens at once there is no time between them.
    gaps = total(figures, "gen_ai_server_time_per_output_token_seconds_count", **standard)
    assert 0 < gaps <= ANSWERED
    tokens = {**standard, "gen_ai_token_type": "input"}
    assert total(figures, "gen_ai_client_token_usage_sum", **tokens) == ANSWERED * PROMPT_TOKENS
    assert total(figures, "gen_ai_client_token_usage_bucket", le="4.0", **tokens) == 0
    assert total(figures, "sluice_gateway_ready") == 1
    assert total(figures, "sluice_nodes_ready") == 1
    assert total(figures, "sluice_breakers", state="closed") == 1
    assert total(figures, "sluice_dropped_series_total") == 0


def _check_dashboards(product: Product) -> None:
    """What Grafana and Prometheus are told to ask for is what gateway and pages tell."""
    web = Client().get("/metrics", headers=TOKEN).content.decode()
    assert "sluice_open_holds 0" in web.splitlines()
    assert total(read(web), "sluice_stage_owner_info") == len(STAGES)
    told = offered(page(product)) | offered(web)
    assert asked_for() and asked_for() - told == set()
    text = (settings.BASE_DIR / "docs" / "observability.md").read_text()
    text += (settings.BASE_DIR / "docs" / "fleet.md").read_text()
    families = re.findall(r"^# TYPE (\S+) ", page(product) + web, re.MULTILINE)
    # In this format a gauge's histogram is three families.
    own = {re.sub(r"_g(sum|count)$", "", name) for name in families}
    assert {name for name in own if f"`{name}`" not in text} == set()


def _check_access(product: Product) -> None:
    url = f"{product.urls[0]}/metrics"
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": product.key}):
        answer = httpx2.get(url, headers=headers)
        assert answer.status_code == 401 and "sluice_" not in answer.text
    key = {"authorization": f"Bearer {product.key}"}
    assert httpx2.get(url, headers=key).status_code == 401


def _check_probes(product: Product) -> None:
    def facts(path: str) -> dict[str, Any]:
        answer = httpx2.get(f"{product.urls[0]}{path}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    assert facts("/healthz")["status"] == "ok"
    assert facts("/startupz") == {"started": True}
    ready = facts("/readyz")
    assert ready["problems"] == [] and ready["nodes"] == 1 and ready["ledger"] is True


def _check_traces(collector: Collector, answers: list[Answer]) -> None:
    wait_for(lambda: all(collector.of_trace(each.request) for each in answers), "their spans")
    for answer in answers:
        _check_spans(collector.of_trace(answer.request), parent="")


def _check_spans(spans: list[Taken], *, parent: str) -> Taken:
    """All spans of one request: stages below it, layers below stages, each with its real time."""
    by_id = {span.span: span for span in spans}
    assert len(by_id) == len(spans)
    (root,) = (span for span in spans if span.kind == SERVER)
    assert root.parent == parent
    assert root.resource["service.name"] == "gateway-under-test"
    assert root.name == f"text_completion {MODEL.name}"
    assert root.attributes["gen_ai.usage.input_tokens"] == PROMPT_TOKENS
    assert root.attributes["gen_ai.usage.output_tokens"] == TOKENS
    assert root.attributes["gen_ai.response.finish_reasons"] == ["length"]
    named = {span.name: span for span in SPANS}
    children = [span for span in spans if span is not root]
    assert {name for name, _, _ in STAGES} <= {span.name for span in children}
    assert len({span.name for span in children if named[span.name].layer}) >= 14
    for span in children:
        above = by_id[span.parent]
        wanted = named[span.name].stage if named[span.name].layer else root.name
        assert above.name == wanted
        assert root.begin_ns <= span.begin_ns <= span.end_ns
        # What a node measured is placed by our clock, to within its way here.
        assert span.attributes["sluice.remote"] or span.end_ns <= root.end_ns
    return root


def _check_callers_trace(product: Product, collector: Collector) -> None:
    """A caller's trace goes on here, and its decision is kept; what it did before is shown."""
    before = {"server-timing": 'retrieval;dur=53.2, rerank;dur=12;desc="x"'}
    for trace, flags in ((UNSAMPLED, "00"), (TRACE, "01")):
        headers = {
            "authorization": f"Bearer {product.key}",
            "traceparent": f"00-{trace}-{CALLER}-{flags}",
            "tracestate": "shop=1",
            **before,
        }
        body = make_body(tokens=TOKENS, stream=False)
        answer = httpx2.post(f"{product.urls[0]}/v1/completions", json=body, headers=headers)
        assert answer.status_code == 200
        stages = re.findall(r"(\w+);dur=[\d.]+", answer.headers["server-timing"])
        assert stages == [name for name, _, _ in STAGES]
    wait_for(lambda: collector.of_trace(TRACE), "spans of the caller's trace")
    root = _check_spans(collector.of_trace(TRACE), parent=CALLER)
    assert root.state == "shop=1"
    assert root.attributes["sluice.client.retrieval.duration_ms"] == 53.2
    # It came before the other, so it would have been sent by now.
    assert collector.of_trace(UNSAMPLED) == []
    page = f"/requests/{answer.headers['x-request-id']}"
    client = demo_admin()
    wait_for(lambda: client.get(page).status_code == 200, "the request's row")
    shown = client.get(page).content.decode()
    assert TRACE in shown and "retrieval" in shown and "53.200" in shown


def _check_logs(product: Product) -> None:
    asyncio.run(_with_secrets(product))
    logs = {child.name: child.log for child in (*product.gateways, *product.nodes)}
    for name, log in logs.items():
        assert log
        for secret in (PROMPT_SECRET, HEADER_SECRET, KEY_SECRET, product.key):
            assert secret not in log, (name, secret)
        assert settings.METRICS_TOKEN not in log
    lines = [json.loads(line) for line in logs["gateway-1"].splitlines()]
    assert all({"event", "level", "timestamp", "logger"} <= set(line) for line in lines)
    assert any("node lost" in line["event"] for line in lines)
