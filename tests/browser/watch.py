"""Browser pages that note every console error, policy violation and request to another origin."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

from axe_playwright_python.base import AXE_SCRIPT
from django.conf import settings
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

from controlplane.tenants.models import User
from tests.browser.site import Site, elsewhere
from tests.support.fleet import MODEL
from tests.support.people import signed_in

T = TypeVar("T")
WAIT_MS = 60_000
DESK = (1440, 900)
PHONE = (390, 844)
# What a page still draws or measures anew is looked at again, for so long.
SETTLE_S_MAX = 20.0
LOOK_MS = 100
KEY_TRIES_MAX = 100
KEY_WAIT_MS = 100
VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`CSP ${event.effectiveDirective} ${event.blockedURI} ${event.sample}`);
});
"""
# Rules that call nothing serious need not look.
MILD = ("heading-order", "landmark-unique", "page-has-heading-one", "region", "skip-link")
FINDINGS = """
async ([include, only, never]) => {
  const rules = Object.fromEntries(never.map((rule) => [rule, { enabled: false }]));
  const options = only.length ? { runOnly: only } : { rules };
  const { violations } = await axe.run({ include }, { resultTypes: ["violations"], ...options });
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html.slice(0, 160)}`));
}
"""


class Profiles:
    """Profiles of a browser that are used again: without cookies, and pages keep nothing else.

    Each has a page that stays open, and with it the one process of all its pages: starting those
    and compiling the code of charts anew costs more than most tests do.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._idle: defaultdict[str, list[BrowserContext]] = defaultdict(list)

    def take(self, url: str) -> BrowserContext:
        """One of this site that nobody else uses until it is given back."""
        idle = self._idle[url]
        return idle.pop() if idle else self._make(url)

    def give_back(self, url: str, context: BrowserContext) -> None:
        """Close its pages and forget who was signed in."""
        for page in context.pages[1:]:
            page.close()
        context.clear_cookies()
        self._idle[url].append(context)

    def _make(self, url: str) -> BrowserContext:
        context = self._browser.new_context(base_url=url)
        context.set_default_timeout(WAIT_MS)
        context.add_init_script(VIOLATIONS)
        context.new_page().goto("/readyz")
        return context


class Watch:
    """Opens profiles and gathers complaints; `allowed` are parts of expected console errors.

    `origins` are others that pages are to lead to.
    """

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles
        self._contexts: list[tuple[str, BrowserContext]] = []
        self.complaints: list[str] = []
        self.allowed: list[str] = []
        self.origins: list[str] = []

    def open(self, site: Site, *, size: tuple[int, int] = DESK, dark: bool = False) -> Page:
        """A page of a profile of its own, not signed in."""
        context = self._profiles.take(site.url)
        self._contexts.append((site.url, context))
        page = context.new_page()
        turn(page, size, dark)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        page.on("request", lambda request: self._asked(request, site))
        return page

    def sign_in(
        self, site: Site, *, email: str = "alice@example.org", size: tuple[int, int] = DESK,
        dark: bool = False,
    ) -> Page:  # fmt: skip
        """A page that has gone nowhere yet, of a user who has just signed in.

        Not through the form, whose own tests are in `test_empty.py` and `test_people.py`.
        """
        page = self.open(site, size=size, dark=dark)
        client = elsewhere(lambda: signed_in(User.objects.get(email=email)))
        name = settings.SESSION_COOKIE_NAME
        page.context.add_cookies(
            [{"name": name, "value": client.cookies[name].value, "url": site.url}]
        )
        return page

    def close(self) -> None:
        """End all pages."""
        for url, context in self._contexts:
            self._profiles.give_back(url, context)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not any(part in message.text for part in self.allowed):
            self.complaints.append(f"console: {message.text}")

    def _asked(self, request: Request, site: Site) -> None:
        parts = urlsplit(request.url)
        if f"{parts.scheme}://{parts.netloc}" in self.origins:
            return
        if parts.scheme not in ("data", "blob") and parts.netloc != urlsplit(site.url).netloc:
            self.complaints.append(f"other origin: {request.url}")


def turn(page: Page, size: tuple[int, int], dark: bool) -> None:
    """Another screen and theme for the same page."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    # Without motion: what still changes its colour would be looked at again and again.
    page.emulate_media(color_scheme="dark" if dark else "light", reduced_motion="reduce")


def check(page: Page) -> None:
    """Nothing serious found, nothing wider than the screen: on a dark phone, and at a desk."""
    for size, dark in ((PHONE, True), (DESK, False)):
        turn(page, size, dark)
        fits(page)


def fits(page: Page) -> None:
    """The same as the page is now."""
    found = serious_findings(page)
    assert found == [], (page.url, page.viewport_size, found)
    assert wider_than_screen(page) <= 0, (page.url, page.viewport_size)


def serious_findings(page: Page, *rules: str, within: Sequence[str] = ("html",)) -> list[str]:
    """What axe finds and calls serious or worse, by these rules or all, on a settled page."""
    return _settled(page, lambda: _findings(page, rules, within))


def _settled(page: Page, look: Callable[[], T]) -> T:
    """What is seen as soon as it is nothing, else at the last look."""
    ends = time.monotonic() + SETTLE_S_MAX
    while (seen := look()) and time.monotonic() < ends:
        page.wait_for_timeout(LOOK_MS)
    return seen


def _findings(page: Page, rules: Sequence[str], within: Sequence[str]) -> list[str]:
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    found: list[str] = page.evaluate(FINDINGS, [[*within], [*rules], [*MILD]])
    return found


def wider_than_screen(page: Page) -> int:
    """Pixels by which the page scrolls sideways, once its charts have taken their new size."""
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return _settled(page, lambda: max(0, int(page.evaluate(wider))))


def ask(page: Page, site: Site, key: str, words: str = "hello") -> None:
    """One short request; a new key is known to the gateway within some seconds."""
    body = {"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": words}]}
    url, headers = f"{site.url}/v1/chat/completions", {"authorization": f"Bearer {key}"}
    for _ in range(KEY_TRIES_MAX):
        answer = page.request.post(url, headers=headers, data=body)
        if answer.status != 401:
            break
        page.wait_for_timeout(KEY_WAIT_MS)
    assert answer.status == 200
