"""Pages over the synthetic past: CPU of the web process, and how soon Chromium can be used.

A page's CPU is the web process' own, the mean of several requests in the least of some passes:
other work on the machine only adds to it. How long the page took to answer is shown beside it.
"""

from __future__ import annotations

import statistics
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, sync_playwright

from benchmarks.machine import cpu_s
from benchmarks.stack import free_port, listening, process, wait_for
from benchmarks.telemetry.past import write_past
from tests.browser.conftest import CHROMIUM, FLAGS
from tests.support.money import rows
from tests.support.people import demo_admin

PAGES = ("/", "/latency", "/cache", "/spend", "/slos", "/insights", "/insights/stages")
RANGES = ("30d", "1h")
WARM, ASKED, PASSES = 3, 12, 4
OPENED = 5
MS = 1_000
# Set once the page's own scripts run, and once every chart is drawn.
DRAWN = (
    "() => { const all = [...document.querySelectorAll('[id^=plot-]')];"
    " return all.length > 0 && all.every((one) => one.querySelector('.main-svg')); }"
)
USABLE = (
    "() => { const at = performance.getEntriesByType('navigation')[0];"
    " const paint = performance.getEntriesByName('first-contentful-paint')[0];"
    " return Math.max(at.domContentLoadedEventEnd, paint ? paint.startTime : Infinity); }"
)


def run() -> dict[str, Any]:
    """All figures of pages."""
    (organization, project), *_ = rows("SELECT organization_id, id FROM projects ORDER BY id")
    began = time.monotonic()
    written = write_past(organization, project)
    print(f"past: {written:,} rows of roll-ups, written in {time.monotonic() - began:.0f} s")
    client = demo_admin()
    cookie = f"{settings.SESSION_COOKIE_NAME}={_session(client)}"
    with _web() as (port, pid):
        measured = {span: _pages(port, pid, cookie, span) for span in RANGES}
        browser = _browser(port, _session(client))
    figures: dict[str, Any] = {"requests_in_past": 100_000_000, "rows_in_past": written}
    for span, pages in measured.items():
        known = {path: ms for path, ms in pages.items() if ms is not None}
        slowest = max(known, key=lambda path: known[path])
        figures[f"page_{span}_cpu_ms"] = known[slowest]
        figures[f"page_{span}_slowest"] = slowest
        figures[f"pages_{span}_cpu_ms"] = pages
    return {**figures, **browser}


def _session(client: Client) -> str:
    return str(client.cookies[settings.SESSION_COOKIE_NAME].value)


@contextmanager
def _web() -> Iterator[tuple[int, int]]:
    port = free_port()
    argv = [sys.executable, "-m", "benchmarks.serve", "controlplane.asgi:application", str(port)]
    with process(argv, SLUICE_ROLE="web") as pid:
        wait_for(lambda: listening(port), "the web process to listen")
        yield port, pid


def _pages(port: int, pid: int, cookie: str, span: str) -> dict[str, float | None]:
    """CPU milliseconds by page; None where the page does not answer."""
    print(f"\n{'page over ' + span:28} {'web CPU ms':>11} {'answered in ms':>15}")
    found: dict[str, float | None] = {}
    for path in PAGES:
        url = f"http://127.0.0.1:{port}{path}?range={span}"
        if _get(url, cookie) != 200:
            found[path] = None
            print(f"{path:28} {'no answer':>11}")
            continue
        for _ in range(WARM):
            _get(url, cookie)
        cpu_ms, each_ms = min(_pass(pid, url, cookie) for _ in range(PASSES))
        found[path] = round(cpu_ms, 1)
        print(f"{path:28} {found[path]:>11} {each_ms:>15.0f}")
    return found


def _pass(pid: int, url: str, cookie: str) -> tuple[float, float]:
    """Milliseconds of CPU and of waiting, for each of so many requests one after another."""
    before, began = cpu_s(pid), time.monotonic()
    for _ in range(ASKED):
        _get(url, cookie)
    return (cpu_s(pid) - before) * MS / ASKED, (time.monotonic() - began) * MS / ASKED


def _get(url: str, cookie: str) -> int:
    asked = urllib.request.Request(url, headers={"cookie": cookie})
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _browser(port: int, session: str) -> dict[str, float]:
    """Seconds from the start of navigation, on the Overview over 30 days; medians."""
    first: list[float] = []
    repeat: list[float] = []
    usable: list[float] = []
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for _ in range(OPENED):
            seen = _open(chromium, f"http://127.0.0.1:{port}", session)
            usable.append(seen[0])
            first.append(seen[1])
            repeat.append(seen[2])
        chromium.close()
    return {
        "interactive_s": round(statistics.median(usable), 3),
        "charts_first_s": round(statistics.median(first), 3),
        "charts_repeat_s": round(statistics.median(repeat), 3),
    }


def _open(chromium: Browser, origin: str, session: str) -> tuple[float, float, float]:
    """A fresh profile: usable after, charts drawn after, and drawn the second time."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": origin}])
    page = context.new_page()
    drawn = []
    usable = 0.0
    for _ in range(2):
        page.goto(f"{origin}/?range=30d", wait_until="commit")
        page.wait_for_function(DRAWN, timeout=30_000)
        drawn.append(float(page.evaluate("() => performance.now()")) / MS)
        usable = usable or float(page.evaluate(USABLE)) / MS
    context.close()
    return usable, drawn[0], drawn[1]
