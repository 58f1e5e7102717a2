"""The documentation's site: every page is in it, its links hold, and the product serves it."""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from django.test import override_settings

from controlplane.static_files import DOCS_POLICY, StaticFiles
from tests.release import site
from tests.release.wheel import DOCUMENTATION_PACKED
from tests.support.raw import serving_app, told

HOST = b"Host: sluice.example.org\r\nConnection: close\r\n\r\n"
SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
ELSEWHERE = re.compile(r"(?:src|href)=\"(?:https?:)?//([^\"/]+)[^\"]*\"[^>]*(?:stylesheet|script)")


pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def built(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the wheel has it: built where a warning, such as a link to nowhere, is an error."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(folder)
    return folder / DOCUMENTATION_PACKED


def test_every_document_is_a_page_with_what_comes_from_the_code(built: Path) -> None:
    for path in site.SOURCES.rglob("*.md"):
        page = (built / path.relative_to(site.SOURCES)).with_suffix(".html")
        assert page.exists(), path
    assert "sluice backup" in (built / "site" / "commands.html").read_text()
    endpoints = (built / "site" / "endpoints.html").read_text()
    assert "POST /v1/chat/completions" in endpoints and "max_completion_tokens" in endpoints
    assert "/api/billing/" in (built / "site" / "control-plane.html").read_text()


def test_pages_need_no_other_host_and_no_script_that_the_policy_refuses(built: Path) -> None:
    for page in built.rglob("*.html"):
        text = page.read_text()
        assert ELSEWHERE.findall(text) == []
        for script in SCRIPT.findall(text):
            digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in DOCS_POLICY


@pytest.fixture
async def port(built: Path) -> AsyncIterator[int]:
    async def nothing(scope: object, receive: object, send: object) -> None:
        raise AssertionError("not a file")

    with override_settings(DOCS_DIR=built):
        async with serving_app(StaticFiles(nothing)) as port:
            yield port


async def test_the_product_serves_it(port: int) -> None:
    for path, status, words in (
        ("/docs", 302, b""), ("/docs/", 200, b"Sluice"),
        ("/docs/errors.html", 200, b"pool_elsewhere"),
        ("/docs/searchindex.js", 200, b"Search.setIndex"),
    ):  # fmt: skip
        (answer,) = await told(port, b"GET " + path.encode() + b" HTTP/1.1\r\n" + HOST)
        assert answer.status == status and words in answer.body
        if status == 200:
            assert answer.headers["content-security-policy"] == DOCS_POLICY
