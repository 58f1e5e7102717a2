"""The entrance: each role serves its own prefixes and answers plainly for the others."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connections

from controlplane import probes
from controlplane.asgi import Entrance, build
from controlplane.bridge.process.compose import RunningGateway
from controlplane.telemetry import rollups
from inference.contract.version import VERSION
from tests.support.dashboards import offered
from tests.support.money import rows, superuser_dsn
from tests.support.records import make_record

Message = dict[str, Any]
# What a process says of its release, once.
BUILD = f'\nsluice_build_info{{version="{VERSION}"}} 1\n'


async def call(entrance: Entrance, scope: Message, *events: Message) -> list[Message]:
    """Play events into one connection and collect what comes out."""
    waiting, sent = list(events), []

    async def receive() -> Message:
        if not waiting:
            await asyncio.Event().wait()
        return waiting.pop(0)

    async def send(message: Any) -> None:
        sent.append(dict(message))

    await entrance(scope, receive, send)
    return sent


async def get(entrance: Entrance, path: str) -> tuple[int, Any]:
    scope = {"type": "http", "method": "GET", "path": path, "headers": []}
    start, body = await call(entrance, scope, {"type": "http.request", "body": b""})
    return start["status"], msgspec.json.decode(body["body"])


async def scrape(entrance: Entrance, token: str) -> tuple[int, str]:
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())]
    scope: Message = {"type": "http", "method": "GET", "path": "/metrics", "query_string": b""}
    scope["headers"] = headers
    start, body, *_ = await call(entrance, scope, {"type": "http.request", "body": b""})
    return start["status"], body["body"].decode()


@contextmanager
def unreachable() -> Iterator[None]:
    """Another address for the database of pages, where nobody listens."""
    at = connections.settings["default"]
    before = at["HOST"]
    at["HOST"] = "/nowhere"
    try:
        yield
    finally:
        at["HOST"] = before


@pytest.mark.parametrize("role", ["all", "gateway", "web"])
async def test_every_role_says_that_it_lives(role: str) -> None:
    assert await get(build(role), "/healthz") == (200, {"status": "ok", "loop_late_ms": 0})


async def test_a_gateway_without_configuration_is_not_ready() -> None:
    status, facts = await get(build("gateway"), "/readyz")
    assert status == 503
    assert facts["ready"] is False
    assert facts["nodes"] == 0
    assert "there is no configuration yet" in facts["problems"]
    assert (await get(build("gateway"), "/startupz"))[0] == 503


async def test_pages_are_ready_with_their_database(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entrance = build("web")
    well = {"ready": True, "version": VERSION, "problems": [], "degraded": []}
    well["rollups_behind_s"] = 0.0
    assert await get(entrance, "/readyz") == (200, well)
    lately = datetime.now(UTC) - timedelta(hours=2)
    rows("SELECT telemetry_make_partitions(%s, %s)", lately.date(), lately.date())
    rows(
        "INSERT INTO histogram_minutes (minute, writer, organization, project, measure, model,"
        " route, pool, region, prompt_bucket, status_class, data) SELECT %s, id, id, id, 'total',"
        " '', '', '', '', -1, -1, '' FROM gen_random_uuid() AS id",
        lately,
    )
    # Kept for a while, whoever asks.
    assert await get(entrance, "/readyz") == (200, well)
    monkeypatch.setattr(probes, "ROLLUPS_KEPT_S", 0.0)
    status, facts = await get(entrance, "/readyz")
    assert (status, facts["degraded"]) == (200, [probes.ROLLUPS_BEHIND])
    assert facts["rollups_behind_s"] > 6_000
    assert await get(entrance, "/startupz") == (200, {"started": True})
    entrance.probes.stop()


@contextmanager
def telemetry_locked() -> Iterator[None]:
    """Somebody changes the table that tells what is rolled up: who reads it waits."""
    with psycopg.connect(superuser_dsn()) as other:
        other.execute("LOCK TABLE rollup_retries")
        yield


async def test_pages_are_ready_while_telemetry_is_slow(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "ROLLUPS_S_MAX", 0.2)
    entrance = build("web")
    with telemetry_locked():
        status, facts = await get(entrance, "/readyz")
    assert (status, facts["ready"], facts["problems"]) == (200, True, [])
    assert (facts["rollups_behind_s"], facts["degraded"]) == (None, [probes.ROLLUPS_UNKNOWN])
    entrance.probes.stop()


async def test_pages_are_ready_while_telemetry_fails(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> float:
        raise OperationalError

    monkeypatch.setattr(rollups, "rollups_behind", fails)
    entrance = build("web")
    status, facts = await get(entrance, "/readyz")
    assert (status, facts["degraded"]) == (200, [probes.ROLLUPS_UNKNOWN])
    entrance.probes.stop()


async def test_pages_say_that_their_database_is_not_there() -> None:
    entrance = build("web")
    with unreachable():
        status, facts = await get(entrance, "/readyz")
        assert (status, facts["problems"]) == (503, ["PostgreSQL cannot be reached"])
        assert (await get(entrance, "/startupz"))[0] == 503
    entrance.probes.stop()


def count_folds(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each time that requests were added up for a scrape; one waits to be."""
    folds: list[None] = []
    fold = gateway.recorder.fold

    async def counted() -> None:
        folds.append(None)
        await fold()

    monkeypatch.setattr(gateway.recorder, "fold", counted)
    gateway.recorder.record(make_record())
    return folds


@asynccontextmanager
async def scraped_by_strangers(
    role: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Entrance, list[None]]]:
    """A gateway whose folds are counted, none of them for whoever has no token."""
    entrance = build(role)
    assert isinstance(entrance.gateway, RunningGateway)
    await entrance.gateway.start()
    try:
        folds = count_folds(entrance.gateway, monkeypatch)
        assert (await scrape(entrance, "wrong"))[0] == 401
        assert folds == []
        yield entrance, folds
    finally:
        await entrance.gateway.stop()
        entrance.probes.stop()
        # On the thread where a view has run.
        await sync_to_async(connections.close_all)()


async def test_a_process_of_both_roles_tells_both_kinds_of_figures(
    database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scraped_by_strangers("all", monkeypatch) as (entrance, folds):
        status, page = await scrape(entrance, settings.METRICS_TOKEN)
    assert (status, len(folds)) == (200, 1)
    assert {"sluice_gateway_ready", "sluice_pool_nodes_ready"} <= offered(page)
    assert "sluice_output_tokens_total{" in page
    assert page.count(BUILD) == 1


async def test_a_gateway_adds_up_once_for_two_scrapes_and_never_for_strangers(
    database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scraped_by_strangers("gateway", monkeypatch) as (entrance, folds):
        both = await asyncio.gather(*(scrape(entrance, settings.METRICS_TOKEN) for _ in range(2)))
    assert (both[0], len(folds)) == (both[1], 1)
    assert "sluice_output_tokens_total{" in both[0][1]


@pytest.mark.parametrize(
    ("path", "its"),
    [
        ("/v1/models", True), ("/v1/", True), ("/v1", True), ("//V1/x/../models", True),
        ("/v1/organization", True), ("/v1/organization/usage", False), ("/v10", False),
        ("/", False), ("/healthz", False), ("/metrics", False), ("/api/v1/keys", False),
    ],
)  # fmt: skip
async def test_the_gateway_s_paths_are_its_own_and_never_asgi_s(path: str, its: bool) -> None:
    entrance = build("gateway")
    assert (entrance.gateway_of(path) is not None) == its
    assert build("web").gateway_of(path) is None
    if its:
        with pytest.raises(ImproperlyConfigured):
            await get(entrance, path)


@pytest.mark.parametrize(
    ("role", "path"),
    [("web", "/v1/models"), ("gateway", "/"), ("gateway", "/v1/organization/usage")],
)
async def test_a_prefix_of_another_role_is_a_plain_404(role: str, path: str) -> None:
    status, body = await get(build(role), path)
    assert status == 404
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert path in body["error"]["message"]


@pytest.mark.parametrize(
    ("role", "path"), [("web", "/fleet"), ("gateway", "/live"), ("all", "/v1/x")]
)
async def test_a_socket_that_is_not_served_is_closed(role: str, path: str) -> None:
    scope = {"type": "websocket", "path": path, "headers": []}
    sent = await call(build(role), scope, {"type": "websocket.connect"})
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_the_web_role_starts_and_stops_without_a_gateway() -> None:
    events = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent = await call(build("web"), {"type": "lifespan"}, *events)
    assert [message["type"] for message in sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]


@pytest.mark.parametrize("role", ["all", "gateway", "web"])
async def test_programs_read_json_where_the_base_url_is_wrong(role: str) -> None:
    entrance = build(role)
    assert (await get(entrance, "/health"))[1]["status"] == "ok"
    assert await get(entrance, "/version") == (200, {"version": VERSION})
    for path in ("/chat/completions", "/models", "/models/a", "/messages", "/responses"):
        status, body = await get(entrance, path)
        assert (status, body["error"]["code"]) == (404, "unknown_url")
        assert "must end in /v1" in body["error"]["message"]
