"""Browser pages that note every console error, policy violation and request to another origin."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

from controlplane.tenants.models import User
from tests.browser.site import Site, elsewhere
from tests.support.people import signed_in

T = TypeVar("T")
WAIT_MS = 60_000
DESK = (1440, 900)
PHONE = (390, 844)
SERIOUS = frozenset({"serious", "critical"})
# What a page still draws or measures anew is looked at again, at most so often.
LOOKS_MAX = 20
LOOK_MS = 500
VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`CSP ${event.effectiveDirective} ${event.blockedURI} ${event.sample}`);
});
"""


class Watch:
    """Opens contexts and gathers complaints; `allowed` are parts of expected console errors."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.complaints: list[str] = []
        self.allowed: list[str] = []

    def open(self, site: Site, *, size: tuple[int, int] = DESK, dark: bool = False) -> Page:
        """A page of a fresh browser profile, not signed in."""
        context = self._browser.new_context(
            base_url=site.url,
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
        )
        context.set_default_timeout(WAIT_MS)
        context.add_init_script(VIOLATIONS)
        self._contexts.append(context)
        page = context.new_page()
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
        for context in self._contexts:
            context.close()

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not any(part in message.text for part in self.allowed):
            self.complaints.append(f"console: {message.text}")

    def _asked(self, request: Request, site: Site) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc != urlsplit(site.url).netloc:
            self.complaints.append(f"other origin: {request.url}")


def serious_findings(page: Page, *rules: str) -> list[str]:
    """What axe finds and calls serious or worse, by these rules or all, on a settled page."""
    return _settled(page, lambda: _findings(page, rules))


def _settled(page: Page, look: Callable[[], T]) -> T:
    """What is seen as soon as it is nothing, else after the last look."""
    for _ in range(LOOKS_MAX):
        seen = look()
        if not seen:
            break
        page.wait_for_timeout(LOOK_MS)
    return seen


def _findings(page: Page, rules: tuple[str, ...]) -> list[str]:
    options = {"resultTypes": ["violations"], **({"runOnly": [*rules]} if rules else {})}
    found = Axe().run(page, options=options).response["violations"]
    return [
        f"{one['id']}: {node['html'][:160]}"
        for one in found
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]


def wider_than_screen(page: Page) -> int:
    """Pixels by which the page scrolls sideways, once its charts have taken their new size."""
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return _settled(page, lambda: max(0, int(page.evaluate(wider))))
