"""The Deployments page with a real agent: a host is added, a model deployed, refused, removed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from playwright.sync_api import Page, expect

from tests.browser.site import Site, end_process
from tests.browser.watch import DESK, PHONE, Watch, fits
from tests.support.fleet import MODEL
from tests.support.hosts import SHIPPED

READY_S_MAX = 90.0
LOOK_MS = 500


def _until(page: Page, words: str) -> None:
    """Look again until the page says so."""
    ends = time.monotonic() + READY_S_MAX
    while time.monotonic() < ends:
        page.goto("/deployments")
        if words in page.locator("main").inner_text():
            return
        page.wait_for_timeout(LOOK_MS)
    raise AssertionError(f"never {words!r}: {page.locator('main').inner_text()}")


@contextmanager
def _agent(site: Site, token: str, folder: Path) -> Iterator[None]:
    argv = [sys.executable, "-m", "inference.agent", "--name", "desk-1", "--data", str(folder)]
    argv += ["--control", f"http://127.0.0.1:{site.port}", "--models", str(SHIPPED.parent)]
    process = subprocess.Popen(
        argv, env={**os.environ, "SLUICE_ENROL_TOKEN": token}, cwd=settings.BASE_DIR
    )
    try:
        yield
    finally:
        end_process(process)


def _deploy(page: Page, name: str, sequences: int) -> None:
    page.get_by_role("button", name="Deploy a model").press("Enter")
    page.get_by_label("Deployment name").fill(name)
    page.get_by_label("Model of the catalog").select_option(MODEL)
    page.locator("#new-engine").select_option("echo")
    page.locator("#new-kind").select_option("folder")
    page.get_by_label("Repository or folder").fill(str(SHIPPED))
    page.get_by_label("Sequences at once").fill(str(sequences))
    page.get_by_role("button", name="Deploy", exact=True).press("Enter")
    expect(page.get_by_text(f"Deployment “{name}” is made.")).to_be_visible()


def test_a_model_is_deployed_by_keys_and_removed(site: Site, watch: Watch, tmp_path: Path) -> None:
    page = watch.sign_in(site, size=DESK)
    page.goto("/deployments")
    page.get_by_role("button", name="Add a host").press("Enter")
    page.get_by_label("Host name").fill("desk-1")
    page.get_by_role("button", name="Create command").press("Enter")
    (token,) = re.findall(r"enrol_sluice_\w+", page.locator("#agent-command").inner_text())
    _until(page, "waits for its agent")
    assert token not in page.content()
    with _agent(site, token, tmp_path):
        _until(page, "reports")
        _deploy(page, "too-large", 4_096)
        _until(page, "It does not fit. Needed: ")
        _deploy(page, "small", 1)
        _until(page, "running")
        page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        _until(page, "small-1")
        fits(page)
        page.set_viewport_size({"width": DESK[0], "height": DESK[1]})
        fits(page)
        page.get_by_role("button", name="Change small").press("Enter")
        page.locator("#change-small-replicas").fill("0")
        page.get_by_role("button", name="Save").press("Enter")
        expect(page.get_by_text("Deployment “small” is changed.")).to_be_visible()
        _until(page, "stopped")
        for name in ("small", "too-large"):
            page.get_by_role("button", name=f"Remove {name}").press("Enter")
            page.get_by_role("button", name="Remove the deployment").press("Enter")
            expect(page.get_by_text(f"Deployment “{name}” drains")).to_be_visible()
        page.get_by_role("button", name="Remove the host desk-1").press("Enter")
        page.get_by_role("button", name="Remove the host", exact=True).press("Enter")
        expect(page.get_by_text("Host “desk-1” is removed")).to_be_visible()
