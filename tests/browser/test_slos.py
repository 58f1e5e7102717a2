"""SLOs and Stages in a browser: data, an alert, a burn-down, forms by keyboard, every size."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import sin

import pytest
from playwright.sync_api import expect

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import organization_scope
from controlplane.slos import evaluate, upkeep
from controlplane.slos.checks import StageBody
from controlplane.slos.models import EVERYONE, Change, Objective
from controlplane.slos.services import objective_create, stage_owner_set
from controlplane.slos.standings import floor
from tests.browser.site import Site, elsewhere
from tests.browser.watch import Watch, check, serious_findings
from tests.support.money import rows
from tests.support.objectives import count, draft

DAYS = 28


def _history(objective: Objective, now: datetime) -> None:
    """A month by hours, one bad day in it, and an outage of ten minutes just now."""
    values = []
    for hour in range(DAYS * 24, 6, -1):
        at = floor(now, 3_600) - timedelta(hours=hour)
        bad = 240 if 300 <= hour < 312 else round(12 + 8 * sin(hour / 4))
        values.append((objective.id, at, 6_000 - bad))
    for identity, at, good in values:
        rows(
            "INSERT INTO slo_counts VALUES (%s, 3600, %s, 1, %s, %s, %s, 6000)",
            identity, at, EVERYONE, EVERYONE, good,
        )  # fmt: skip
    for minute in range(60):
        at = now - timedelta(minutes=minute)
        count(objective, at, good=20 if minute < 10 else 100, total=100)


@pytest.fixture(autouse=True, scope="module")
def objectives(site: Site) -> None:
    """Objectives of everyone and of Acme; one of them has a past."""

    def prepare() -> None:
        now = datetime.now(UTC)
        busy = objective_create(
            actor=OPERATOR, organization=EVERYONE, draft=draft(name="busy answers", shed_priority=0)
        )
        objective_create(
            actor=OPERATOR,
            organization=EVERYONE,
            draft=draft(name="warm prompts", indicator="cache_hit", threshold=500_000),
        )
        objective_create(
            actor=site.cast.alice,
            organization=site.cast.acme.id,
            draft=draft(name="first token", indicator="ttft", threshold=300_000),
        )
        _history(busy, now)
        with organization_scope([EVERYONE]):
            Change.objects.create(
                created_at=now - timedelta(days=13), organization=EVERYONE, objective=busy,
                version=1, text="target 99.5 % to 99 %",
            )  # fmt: skip
        for _ in range(DAYS):
            upkeep.counts_roll_up(now)
        evaluate.objectives_evaluate(now)
        stage_owner_set(
            actor=OPERATOR,
            stage="s1_admission",
            owner=StageBody("edge", 5_000, "s1-admission", "edge@example.org"),
        )

    elsewhere(prepare)


def test_pages_are_accessible_and_fit(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/slos")
    expect(page.locator("main")).to_contain_text("priority low is shed")
    paths = ["/slos", "/stages", "/runbooks", "/runbooks/ttft"]
    paths.append(str(page.get_by_role("link", name="busy answers").first.get_attribute("href")))
    for path in paths:
        page.goto(path)
        expect(page.locator("h1")).to_be_visible()
        check(page)
    expect(page.get_by_role("heading", name="By month")).to_be_visible()
    expect(page.locator(".plot .main-svg").first).to_be_visible()
    # What was made and changed in between; besides, versions of rules that other tests publish.
    expect(page.locator(".plot .annotation").nth(1)).to_be_visible()
    expect(page.locator("main")).to_contain_text("target 99.5 % to 99 %")


def test_an_objective_is_made_by_keyboard(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/slos")
    page.get_by_role("button", name="New objective").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#objective-of")).to_be_focused()
    assert serious_findings(page) == []
    page.get_by_label("Indicator", exact=True).select_option("total")
    page.get_by_label("Name", exact=True).fill("whole answers")
    page.get_by_label("Threshold (ms").fill("2500")
    page.get_by_label("Target, %").fill("99.5")
    page.get_by_label("Owner team").fill("platform")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="whole answers")).to_be_visible()
    expect(page.locator("main")).to_contain_text("No data in this period yet.")
    expect(page.locator("main")).to_contain_text("Total time, 2.50 s at most")
    page.get_by_role("button", name="Change").click()
    assert serious_findings(page) == []
    page.get_by_role("button", name="End objective").click()
    expect(page.get_by_role("status").first).to_contain_text("whole answers has ended")
