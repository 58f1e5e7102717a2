"""What people come for, from a cold start by clicks and keys alone: how many it takes.

A step is a click, or a key that does something (typing is none).
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from controlplane.catalog.selectors import model_find
from controlplane.catalog.services import model_remove
from controlplane.connections.models import Connection
from controlplane.connections.offers import connection_remove
from controlplane.core.audit.entries import OPERATOR
from controlplane.hosts.models import Deployment
from controlplane.hosts.services import deployment_remove, host_add, host_remove
from controlplane.tenants.services import organization_create, project_create
from controlplane.tenants.sign_in.accounts import user_create
from tests.browser.site import Site, agent, connector, elsewhere
from tests.browser.watch import Watch, ask, check, fits
from tests.support.hosted import SECRET, UPSTREAM, hosted_provider
from tests.support.hosts import SHIPPED
from tests.support.hub import Hub, running_hub
from tests.support.waiting import wait_for

SERVED_MS_MAX = 120_000


class Steps:
    """Acts on a page, and counts."""

    def __init__(self, page: Page) -> None:
        self.page, self.taken = page, 0

    def click(self, of: Locator) -> None:
        of.click()
        self.taken += 1

    def choose(self, of: Locator, value: str) -> None:
        of.select_option(value)
        self.taken += 1

    def press(self, keys: str) -> None:
        self.page.keyboard.press(keys)
        self.taken += 1


def _newcomer() -> None:
    user = user_create(actor=OPERATOR, email="cold@example.org")
    organization = organization_create(actor=OPERATOR, name="Cold", owner=user)
    project_create(actor=user, organization=organization, name="first")


def test_from_the_first_key_to_the_first_request_are_five_steps(site: Site, watch: Watch) -> None:
    elsewhere(_newcomer)
    steps = Steps(watch.sign_in(site, email="cold@example.org"))
    page = steps.page
    page.goto("/")
    steps.click(page.get_by_role("link", name="Create a key"))
    steps.click(page.get_by_role("button", name="Create key").first)
    page.get_by_label("Label").fill("first")
    steps.click(page.get_by_role("dialog").get_by_role("button", name="Create key"))
    secret = page.get_by_text(re.compile(r"^sk_sluice_\w+$")).first.inner_text()
    ask(page, site, secret)
    steps.click(page.get_by_role("link", name="see its requests"))
    row = page.get_by_role("table", name="Requests").locator("tbody th a").first

    def there() -> bool:
        page.reload()
        return row.count() > 0

    wait_for(there, "the request in the list")
    steps.click(row)
    expect(page.locator(".waterfall")).to_be_visible()
    assert steps.taken <= 5


def test_from_a_request_id_to_its_page_are_two_steps(site: Site, watch: Watch) -> None:
    steps = Steps(watch.sign_in(site))
    page = steps.page
    page.goto("/keys")
    asked = page.request.post(
        f"{site.url}/v1/chat/completions",
        headers={"authorization": f"Bearer {site.key.secret}"},
        data={
            "model": "sluice-5m",
            "max_tokens": 4,
            "messages": [{"role": "user", "content": "x"}],
        },
    )
    identity = asked.headers["x-request-id"]
    wait_for(lambda: page.request.get(f"/requests/{identity}").ok, "the request's row")
    steps.press("Control+k")
    page.keyboard.insert_text(identity)
    expect(page.locator("#found a").first).to_contain_text(identity[-8:])
    steps.press("Enter")
    expect(page.locator(".waterfall")).to_be_visible()
    assert identity.removeprefix("req_") in page.url and steps.taken <= 2


def test_from_a_slow_percentile_to_why_are_three_steps(site: Site, watch: Watch) -> None:
    steps = Steps(watch.sign_in(site))
    page = steps.page
    page.goto("/?range=24h")
    ask(page, site, site.key.secret)
    slow = page.locator("section[aria-labelledby='stages-title'] tbody tr").nth(4)
    link = slow.locator("td[data-label^='p95'] a.exemplar")
    wait_for(partial(_leads, page, link), "a percentile that leads to a request")
    steps.click(link)
    expect(page.get_by_role("heading", name="Why it took")).to_be_visible()
    assert steps.taken <= 3


def _leads(page: Page, link: Locator) -> bool:
    """Whether the percentile's request is recorded: the figures of history are there before it."""
    page.reload()
    href = link.get_attribute("href") if link.count() else None
    return href is not None and "/requests/req_" in page.request.get(href).url


def _begin_model(steps: Steps, name: str, server: str, source: str) -> None:
    """Go to the dialog from the first page, and fill in what every model needs."""
    page = steps.page
    page.goto("/")
    steps.press("Control+k")
    page.keyboard.insert_text("models")
    expect(page.locator("#found a").first).to_contain_text("Models")
    steps.press("Enter")
    steps.click(page.get_by_role("button", name="Add a model"))
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Model name in requests").fill(name)
    steps.choose(dialog.get_by_label("Served by"), server)
    dialog.get_by_label("Repository, folder or URL").fill(source)
    dialog.get_by_label("Context window").fill("2048")
    dialog.get_by_label("Default output").fill("16")
    dialog.get_by_label("Max. output").fill("16")
    for words, rate in (("Input", "0.15"), ("Cached input", "0.05"), ("Output", "0.60")):
        dialog.get_by_label(words, exact=True).fill(rate)


def test_a_repository_of_the_hub_is_found_from_the_form(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/catalog")
    page.get_by_role("button", name="Add a model").press("Enter")
    dialog = page.get_by_role("dialog")
    source = dialog.get_by_label("Repository, folder or URL")
    search = dialog.get_by_role("button", name="Search http://")
    expect(search).to_be_hidden()
    dialog.get_by_label("Served by").select_option("hub")
    source.fill("small")
    search.press("Enter")
    told = dialog.get_by_role("status")
    expect(told).to_contain_text("The hub was not reached")
    listed: list[dict[str, Any]] = [
        {"id": "owner/small-chat", "downloads": 12_300, "pipeline_tag": "text-generation",
         "safetensors": {"total": 1_240_000_000}},
        {"id": "owner/small-gated", "gated": "manual"},
        {"id": "owner/large"},
    ]  # fmt: skip
    with running_hub(Hub(listed=listed), site.hub_port):
        search.press("Enter")
        found = told.get_by_role("button")
        expect(found).to_have_count(2)
        expect(found.first).to_contain_text(
            "1.24 G parameters · text-generation · 12.3 k downloads"
        )
        expect(found.last).to_contain_text("needs a token")
        check(page)
        found.first.press("Enter")
    expect(source).to_have_value("owner/small-chat")
    expect(source).to_be_focused()


def _answers(steps: Steps) -> None:
    """Add it, wait on its page until it is served, and ask it."""
    page = steps.page
    steps.click(page.get_by_role("dialog").get_by_role("button", name="Add", exact=True))
    tries = page.get_by_role("link", name="Try it")
    expect(tries).to_be_visible(timeout=SERVED_MS_MAX)
    fits(page)
    steps.click(tries)
    page.get_by_label("You", exact=True).fill("Good day")
    steps.click(page.get_by_role("button", name="Send"))
    expect(page.locator("#ask-state")).to_have_text("Done")
    expect(page.locator(".cost").last).to_contain_text("$0.")
    assert steps.taken <= 8


def _forget(name: str) -> None:
    model = model_find(name=name)
    assert model is not None
    model_remove(actor=OPERATOR, model=model)


def test_a_model_of_another_server_answers_after_eight_steps(site: Site, watch: Watch) -> None:
    steps = Steps(watch.sign_in(site))
    page = steps.page
    with hosted_provider() as provider, connector(site):
        _begin_model(steps, "far-away", "url", provider.url)
        page.get_by_label("Model name on the server").fill(UPSTREAM)
        page.get_by_label("API key").fill(SECRET)
        check(page)
        _answers(steps)
        assert SECRET not in page.content()

        def remove() -> None:
            made = Connection.objects.get(name="far-away", removed_at=None)
            connection_remove(actor=OPERATOR, connection=made)
            _forget("far-away")

        elsewhere(remove)


def test_a_model_of_a_host_answers_after_eight_steps(
    site: Site, watch: Watch, tmp_path: Path
) -> None:
    steps = Steps(watch.sign_in(site))
    host = elsewhere(lambda: host_add(actor=OPERATOR, name="desk-3"))
    with agent(site, host.token, tmp_path, "desk-3"):
        _begin_model(steps, "own-copy", "folder", str(SHIPPED))
        _answers(steps)
        row = elsewhere(lambda: Deployment.objects.get(name="own-copy"))
        elsewhere(lambda: deployment_remove(actor=OPERATOR, deployment=row))
        wait_for(lambda: elsewhere(lambda: not Deployment.objects.exists()), "its end")
        elsewhere(lambda: _forget("own-copy"))
        for _ in range(2):  # The second time it is forgotten at once.
            elsewhere(lambda: host_remove(actor=OPERATOR, host=host.host))
