"""The Fleet page with real nodes: enrolled by its command, approved, explained, drained by keys."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings
from playwright.sync_api import Page, expect

from controlplane.fleet.models import Node
from inference.contract.roofline import ComputePath
from tests.browser.site import NODE, Site, elsewhere, end_process
from tests.browser.watch import DESK, PHONE, Watch, fits
from tests.gateway.nodes.test_approval import foreign_model

READY_S_MAX = 300.0
LOOK_MS = 500


def _row(page: Page, name: str) -> str:
    """What the node's line says; nothing where it has none yet."""
    found = page.locator("tr", has=page.get_by_role("rowheader", name=name))
    return found.last.inner_text() if found.count() else ""


def _until(page: Page, name: str, words: str) -> None:
    """Look again until the node's line says so."""
    ends = time.monotonic() + READY_S_MAX
    while time.monotonic() < ends:
        page.goto("/fleet")
        if words in _row(page, name):
            return
        page.wait_for_timeout(LOOK_MS)
    raise AssertionError(f"{name} never became {words!r}: {_row(page, name)}")


@contextmanager
def _node(site: Site, token: str, name: str, folder: Path) -> Iterator[Path]:
    file = folder / "credential"
    argv = [sys.executable, "-m", "inference", "--gateway", f"ws://127.0.0.1:{site.port}"]
    argv += ["--name", name, "--credential-file", str(file), "--engine", "echo"]
    argv += ["--model", str(foreign_model(folder))]
    process = subprocess.Popen(
        argv, env={**os.environ, "SLUICE_ENROL_TOKEN": token}, cwd=settings.BASE_DIR
    )
    try:
        yield file
    finally:
        end_process(process)


def test_a_node_is_enrolled_approved_and_says_why_it_does_not_serve(
    site: Site, watch: Watch, tmp_path: Path
) -> None:
    page = watch.sign_in(site, size=DESK)
    _until(page, NODE, "ready")
    page.get_by_role("button", name="Enrol a node").first.focus()
    page.keyboard.press("Enter")
    page.get_by_label("Node name").fill("gpu-2")
    page.get_by_role("button", name="Create command").focus()
    page.keyboard.press("Enter")
    command = page.locator("#enrol-command").inner_text()
    (token,) = re.findall(r"enrol_sluice_\w+", command)
    assert "--name gpu-2" in command and "--credential-file" in command
    page.goto("/fleet")
    assert token not in page.content()
    with _node(site, token, "gpu-2", tmp_path) as file:
        _until(page, "gpu-2", "waiting for approval")
        assert file.stat().st_mode & 0o777 == 0o600
        page.get_by_role("button", name="Approve gpu-2").focus()
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Approve", exact=True).press("Enter")
        expect(page.get_by_text("can serve now")).to_be_visible()
        _until(page, "gpu-2", "digest waiting for approval")
        page.set_viewport_size({"width": 1280, "height": 800})
        fits(page)
        # Nor is anything of the table out of its panel.
        expect(page.get_by_role("button", name="Remove gpu-2")).to_be_in_viewport(ratio=1)
        page.get_by_role("button", name=re.compile("Approve tiny of gpu-2")).press("Enter")
        # The form goes out after the key: whoever leaves the page before has sent nothing.
        expect(page.get_by_text("may be served with this digest")).to_be_visible()
        _until(page, "gpu-2", "ready")
    _until(page, "gpu-2", "not connected")
    page.get_by_role("button", name="Remove gpu-2").press("Enter")
    page.get_by_role("button", name="Remove the node").press("Enter")
    expect(page.get_by_text("is removed")).to_be_visible()


def test_a_node_is_drained_and_taken_back(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site, size=PHONE, dark=True)
    _until(page, NODE, "ready")
    fits(page)
    page.get_by_role("button", name=f"Drain {NODE}").press("Enter")
    page.get_by_role("button", name="Drain", exact=True).press("Enter")
    expect(page.get_by_text("takes no new jobs")).to_be_visible()
    _until(page, NODE, "drained")
    page.get_by_role("button", name=f"Undrain {NODE}").press("Enter")
    page.get_by_role("button", name="Undrain", exact=True).press("Enter")
    expect(page.get_by_text("takes jobs again")).to_be_visible()
    _until(page, NODE, "ready")


def _facts_of_node(change: dict[str, Any]) -> None:
    node = Node.objects.get(name=NODE)
    node.facts = {key: value for key, value in (node.facts | change).items() if value is not None}
    node.save(update_fields=["facts"])


@pytest.mark.parametrize(("size", "dark"), [((1280, 800), False), (PHONE, True)])
def test_a_slow_node_says_why_where_there_is_little_room(
    site: Site, watch: Watch, size: tuple[int, int], dark: bool
) -> None:
    page = watch.sign_in(site, size=size, dark=dark)
    path = ComputePath(
        kernels="torch", slow="no native code: no C compiler found; install gcc or clang",
        decode_tokens_s=251.4, prefill_tokens_s=4_630.0,
    )  # fmt: skip
    ceilings = {"read_bytes_s": 7.68e10, "flop_s": 9e11, "source": "torch"}
    told = {"path": msgspec.structs.asdict(path), "ceilings": ceilings}
    elsewhere(lambda: _facts_of_node(told))
    try:
        _until(page, NODE, path.slow)
        told_there = _row(page, NODE)
        for words in ("echo, torch", "alone 251", "prefill 4,630", "of 76.8 GB/s"):
            assert words in told_there
        fits(page)
        remove = page.get_by_role("button", name=f"Remove {NODE}")
        remove.hover()  # scrolls, and tries again where the live page swaps the row meanwhile
        expect(remove).to_be_in_viewport(ratio=1)
    finally:
        elsewhere(lambda: _facts_of_node(dict.fromkeys(told)))


def test_a_pool_is_made_and_a_wrong_one_says_what_is_wrong(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/fleet")
    page.get_by_role("button", name="Add pool").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("gold")
    # What is wrong is told where it was typed.
    for least, told in (("3", "3 nodes are configured to be kept warm"), ("1", "is created")):
        dialog.get_by_label("Warm nodes").fill(least)
        dialog.get_by_role("button", name="Save").click()
        expect(page.get_by_text(told)).to_be_visible()
    expect(page.get_by_text("This pool has no nodes")).to_be_visible()
    fits(page)
