"""Every page of the URL conf, with one of each thing on it: nothing serious for axe in both themes,
nothing wider than the screen, also in its dialogs. What is no page has to be named here.
"""

from __future__ import annotations

from functools import partial

import pytest
from playwright.sync_api import Page

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.tenants.people.services import invitation_create
from controlplane.tenants.sign_in.accounts import setup_link_create
from tests.browser.site import Site, elsewhere
from tests.browser.test_watching import until_drawn
from tests.browser.watch import DESK, PHONE, Watch, fits, serious_findings, turn
from tests.core.routes import ROUTES
from tests.core.test_authorization_matrix import PARAMETER, sample, url_patterns

PAST = "things"
# Files, parts of pages, answers to scripts, and what leads elsewhere unless one comes from there.
NO_PAGES = {
    "admin-keys/create",
    "audit.csv",
    "audit/installation.csv",
    "batches/<batch:batch_id>/<slug:kind>",
    "catalog/hub",
    "cache/<slug:chart>.csv",
    "configuration/file",
    "confirm/form",
    "conversations.jsonl",
    "deployments/hosts",
    "explore/<slug:chart>.csv",
    "exports/<export:export_id>/file",
    "exports/<export:export_id>/manifest",
    "exports/rows",
    "fleet/<slug:chart>.csv",
    "fleet/tokens",
    "insights.csv",
    "insights/capacity.csv",
    "insights/plan/<slug:chart>.csv",
    "insights/stages.<slug:form>",
    "invoices/<inv:invoice_id>.<slug:form>",
    "keys/create",
    "latency/<slug:chart>.csv",
    "ledger/months",
    "margin.csv",
    "members/invite",
    "metrics",
    "overview/<slug:chart>.csv",
    "playground/cost/<req:request_id>",
    "requests.csv",
    "requests/exemplar",
    "sign-in",
    "sign-in/forgot",
    "sign-in/provider/<slug:provider_id>",
    "sign-in/provider/<slug:provider_id>/done",
    "sign-in/second",
    "slos.csv",
    "slos/<objective:objective_id>.csv",
    "slos/openslo",
    "spend/<slug:panel>.csv",
}
# Those of people without an account or a session are looked at by such.
OF_STRANGERS = {"invitation/<str:token>", "setup/<str:token>"}
QUERIES = {route.path: route.query for route in ROUTES if route.method == "GET" and route.query}
RANGE = "range=6h"
FORMS_ALONE = 405
PATHS = sorted({path for path, view in url_patterns() if view.__module__.startswith("frontend.")})
# So many tests as can share the work of two processes well.
PARTS = 6


def _address(site: Site, path: str) -> str:
    things = site.filled.things
    assert things is not None
    filled = PARAMETER.sub(lambda one: str(sample(path[: one.start()], one[1]).said(things)), path)
    return f"/{filled}?{QUERIES.get(path, RANGE)}"


def _look(page: Page) -> None:
    """In both themes at a desk, on a phone, and with each of its dialogs open."""
    for size, dark in ((PHONE, True), (DESK, False), (DESK, True)):
        turn(page, size, dark)
        fits(page)
    for number in range(page.locator("main dialog, dialog#finder").count()):
        dialog = page.locator("main dialog, dialog#finder").nth(number)
        dialog.evaluate("(dialog) => dialog.showModal()")
        found = serious_findings(page, within=(f"#{dialog.get_attribute('id')}",))
        assert found == [], (page.url, dialog.get_attribute("id"), found)
        dialog.evaluate("(dialog) => dialog.close()")


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_serious_is_found_on_any_page(site: Site, watch: Watch, part: int) -> None:
    page = watch.sign_in(site)
    page.goto("/account")
    for path in PATHS[part::PARTS]:
        address = _address(site, path)
        answer = page.request.get(address, max_redirects=0)
        if answer.status == FORMS_ALONE or path in OF_STRANGERS:
            continue
        shown = answer.status == 200 and b"<title>" in answer.body()
        assert shown != (path in NO_PAGES), (path, answer.status)
        if shown:
            page.goto(address)
            until_drawn(page)
            _look(page)


def test_nothing_serious_is_found_on_pages_for_strangers(site: Site, watch: Watch) -> None:
    cast = site.cast
    invite = partial(
        invitation_create, actor=cast.alice, organization=cast.acme, email="new@example.org",
        role=Role.VIEWER,
    )  # fmt: skip
    _, invited = elsewhere(invite)
    setup = elsewhere(partial(setup_link_create, actor=OPERATOR, user=cast.bob))
    watch.allowed += ["404", "410"]
    page = watch.open(site)
    for path in ("sign-in", f"invitation/{invited}", f"setup/{setup}", "setup/no-such", "none"):
        page.goto(f"/{path}")
        _look(page)
