"""Pages over the synthetic past: CPU of the web process, and how soon Chromium can be used.

A page's CPU is the web process' own, the mean of several requests in the median of some passes, in
which pages take turns. How long the page took to answer is shown beside it.
"""

from __future__ import annotations

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
from benchmarks.recorder import Recorder, spread
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


def run(recorder: Recorder) -> dict[str, Any]:
    """All figures of pages."""
    (organization, project), *_ = rows("SELECT organization_id, id FROM projects ORDER BY id")
    began = time.monotonic()
    written = write_past(organization, project)
    print(f"past: {written:,} rows of roll-ups, written in {time.monotonic() - began:.0f} s")
    client = demo_admin()
    cookie = f"{settings.SESSION_COOKIE_NAME}={_session(client)}"
    with _web() as (port, pid):
        measured = {span: _pages(recorder, (port, pid), cookie, span) for span in RANGES}
        browser = _browser(recorder, port, _session(client))
    figures: dict[str, Any] = {"requests_in_past": 100_000_000, "rows_in_past": written}
    for span, pages in measured.items():
        known = {path: ms for path, ms in pages.items() if ms is not None}
        slowest = max(known, key=lambda path: known[path])
        passes = [row["cpu_ms"] for row in recorder.passes[f"{slowest} over {span}"]]
        figures |= spread(f"page_{span}_cpu_ms", passes, 1)
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


def _pages(
    recorder: Recorder, web: tuple[int, int], cookie: str, span: str
) -> dict[str, float | None]:
    """CPU milliseconds by page; None where the page does not answer."""
    port, pid = web
    urls = {path: f"http://127.0.0.1:{port}{path}?range={span}" for path in PAGES}
    there = {path: url for path, url in urls.items() if _get(url, cookie) == 200}
    for url in there.values():
        for _ in range(WARM):
            _get(url, cookie)
    for _ in range(PASSES):
        for path, url in there.items():
            recorder.keep(f"{path} over {span}", _pass(pid, url, cookie))
    print(f"\n{'page over ' + span:28} {'web CPU ms':>11} {'answered in ms':>15}")
    found: dict[str, float | None] = {}
    for path in PAGES:
        if path not in there:
            found[path] = None
            print(f"{path:28} {'no answer':>11}")
            continue
        row = recorder.medians(f"{path} over {span}", 1)
        found[path] = row["cpu_ms"]
        print(f"{path:28} {row['cpu_ms']:>11} {row['answered_ms']:>15.0f}")
    return found


def _pass(pid: int, url: str, cookie: str) -> dict[str, float]:
    """Milliseconds of CPU and of waiting, for each of so many requests one after another."""
    before, began = cpu_s(pid), time.monotonic()
    for _ in range(ASKED):
        _get(url, cookie)
    answered_ms = (time.monotonic() - began) * MS / ASKED
    return {"cpu_ms": (cpu_s(pid) - before) * MS / ASKED, "answered_ms": answered_ms}


def _get(url: str, cookie: str) -> int:
    asked = urllib.request.Request(url, headers={"cookie": cookie})
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _browser(recorder: Recorder, port: int, session: str) -> dict[str, Any]:
    """Seconds from the start of navigation, on the Overview over 30 days; medians."""
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for _ in range(OPENED):
            seen = _open(chromium, f"http://127.0.0.1:{port}", session)
            names = ("interactive_s", "charts_first_s", "charts_repeat_s")
            recorder.keep("browser", dict(zip(names, seen, strict=True)))
        chromium.close()
    return recorder.medians("browser")


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
