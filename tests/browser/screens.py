"""Pictures of every page with demo data at 1440 and 390 px: `make screenshots` writes them.

Run by its name, not with the other tests: pictures are looked at by people. It fails where a page
does not answer or cannot be drawn.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection
from io import BytesIO
from pathlib import Path

import pytest
from django.urls import reverse
from PIL import Image
from playwright.sync_api import Page, expect

from controlplane.core.audit.entries import OPERATOR
from controlplane.hosts.services import DeploymentDraft, deployment_create, host_add
from controlplane.routing.services import RuleVersions
from controlplane.slos.evaluate import objectives_evaluate
from controlplane.slos.learning import stage_budgets_learn
from controlplane.slos.selectors import objective_standings
from frontend.shared.navigation import NAVIGATION
from tests.browser.site import Site, elsewhere, report_hosts
from tests.browser.watch import DESK, PHONE, Watch
from tests.support.fleet import MODEL
from tests.support.money import rows
from tests.support.rules import generates

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
COLORS = 128
# All of them together stay small enough for a repository.
BYTES_MAX = 6 * 2**20
AGENTS = 6
WARM_MS = 8_000
ANSWER_S_MAX = 30.0
# Pages that tell more with a longer range than their own.
RANGED = frozenset({"overview", "latency", "cache", "requests", "explore", "insights"})
# One that has something to explain.
SLOW = (
    "SELECT request FROM request_records WHERE node = 'node-1'"
    " AND started_at > now() - interval '30 minutes' ORDER BY total_us DESC LIMIT 1"
)


@pytest.fixture(scope="module")
def used(site: Site) -> Iterator[Site]:
    """The site with learned budgets, alerts, a host, a draft, and requests under way."""
    elsewhere(_furnish_more)
    with traffic(site):
        yield site


def _furnish_more() -> None:
    stage_budgets_learn(datetime.now(UTC))
    objectives_evaluate()
    RuleVersions(OPERATOR).draft_create(
        [generates("small-first", MODEL, aliases=["fast", "cheap"])]
    )
    host_add(actor=OPERATOR, name="host-1")
    draft = DeploymentDraft(model=MODEL, source_kind="folder", source_name="/models/tiny")
    deployment_create(actor=OPERATOR, name="second-copy", draft=draft)
    report_hosts()


@contextmanager
def traffic(site: Site) -> Iterator[None]:
    """Some agents that stream one answer after another until the end of the block."""
    ended = threading.Event()
    agents = [
        threading.Thread(target=_ask_until, args=(ended, site), daemon=True) for _ in range(AGENTS)
    ]
    for agent in agents:
        agent.start()
    try:
        yield
    finally:
        ended.set()
        for agent in agents:
            agent.join(ANSWER_S_MAX)


def _ask_until(ended: threading.Event, site: Site) -> None:
    body = {
        "model": MODEL,
        "stream": True,
        "max_tokens": 60,
        "messages": [{"role": "user", "content": "What is a hold, and who gives it back?"}],
    }
    headers = {"authorization": f"Bearer {site.key.secret}", "content-type": "application/json"}
    while not ended.is_set():
        connection = HTTPConnection("127.0.0.1", site.port, timeout=ANSWER_S_MAX)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            connection.getresponse().read()
        finally:
            connection.close()


def _paths(site: Site) -> dict[str, str]:
    """Name and address of every page: those of the navigation, and one of each kind behind it."""
    entries = [entry.name for entries in NAVIGATION.values() for entry in entries]
    paths = {name: reverse(name) + ("?range=6h" if name in RANGED else "") for name in entries}
    alice, acme = site.cast.alice, site.cast.acme.id
    objectives = elsewhere(lambda: objective_standings(actor=alice, organization=acme))
    return paths | {
        "slo": reverse("slo", args=[objectives[0].objective.id]),
        "stage_map": reverse("stage_map"),
        "capacity": reverse("capacity"),
        "comparison": reverse("comparison"),
        "runbooks": reverse("runbooks"),
        "prompt_version": reverse("prompt_version", args=["greeting", 1]),
        "request": reverse("request", args=rows(SLOW)[0]),
        "key": reverse("key", args=[site.key.key.id]),
        "account": reverse("account"),
        "explore": reverse("explore") + "?range=6h&by=prompt_bucket&then=status&measure=ttft",
        "model": reverse("model", args=[MODEL]),
        "draft": reverse("routing_version", args=[2]),
    }


def _take(page: Page, name: str, width: int) -> None:
    for plot in page.locator(".plot").all():
        if "No data" not in plot.inner_text():
            expect(plot.locator(".main-svg").first).to_be_visible(timeout=20_000)
    picture = Image.open(BytesIO(page.screenshot(animations="disabled")))
    small = picture.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
    small.save(FOLDER / f"{name}-{width}.png", optimize=True)


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_every_page_has_its_picture(used: Site, watch: Watch, size: tuple[int, int]) -> None:
    FOLDER.mkdir(exist_ok=True)
    page = watch.sign_in(used, size=size)
    expect(page.locator("body")).to_be_visible()
    page.wait_for_timeout(WARM_MS)
    for name, path in _paths(used).items():
        answer = page.goto(path)
        assert answer is not None and answer.status == 200, path
        _take(page, name, size[0])
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < BYTES_MAX
