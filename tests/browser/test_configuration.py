"""The Configuration page in Chromium: a document compared, refused and told, at desk and phone."""

from __future__ import annotations

from functools import partial

import pytest
from playwright.sync_api import expect

from tests.browser.site import Site, elsewhere
from tests.browser.test_routing import let_stella_in
from tests.browser.watch import DESK, PHONE, Watch, fits

TEXT = """\
sluice: 1
organizations:
  - name: Acme
    limits: {requests_per_min: 600, concurrency: 20}
    budget: {usd: 20, period: month, alerts: [80, 100]}
    templates:
      - name: greeting
        body: {messages: [{role: system, content: Greet whoever comes in one friendly sentence.}]}
"""


@pytest.mark.parametrize(("size", "dark"), [(DESK, False), (PHONE, True)])
def test_a_document_is_compared_and_a_slip_is_told(
    site: Site, watch: Watch, size: tuple[int, int], dark: bool
) -> None:
    watch.allowed.append("422")
    elsewhere(partial(let_stella_in, site))
    page = watch.sign_in(site, email="stella@example.org", size=size, dark=dark)
    page.goto("/configuration")
    fits(page)
    page.get_by_role("link", name="rate-limits").click()
    expect(page.get_by_role("textbox", name="YAML")).to_contain_text("requests_per_day")
    page.get_by_role("textbox", name="YAML").fill(TEXT)
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#changes-title")).to_contain_text("values would change")
    expect(page.get_by_role("button", name="Apply these changes")).to_be_visible()
    fits(page)
    page.get_by_role("textbox", name="YAML").fill(TEXT.replace("concurrency", "at_once"))
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("alert")).to_contain_text("(line 4)")
    fits(page)
