"""Static files are answered while every place for pages is taken, with what a cache needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from django.contrib.staticfiles import finders
from django.test import override_settings

from controlplane import static_files
from controlplane.asgi import build
from controlplane.bounded_pages import BoundedPages
from controlplane.static_files import StaticFiles
from tests.support.raw import Told, answers, serving_app, talk, told
from tests.support.waiting import until
from tests.test_bounded_pages import END, Held

NAME = "sluice/css/base.css"
HSTS = "strict-transport-security"
SECURITY = ("x-content-type-options", "referrer-policy", "cross-origin-opener-policy")
# What SLUICE_HTTPS sets.
TLS = {
    "SECURE_HSTS_SECONDS": 31_536_000,
    "SECURE_PROXY_SSL_HEADER": ("HTTP_X_FORWARDED_PROTO", "https"),
}


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server whose only place is taken."""
    held = Held()
    async with serving_app(StaticFiles(BoundedPages(held, at_once_max=1))) as port:
        page = asyncio.create_task(told(port, b"GET /x HTTP/1.1\r\n" + END + b"\r\n"))
        await until(lambda: held.now == 1)
        yield port
        held.go_on.set()
        assert (await page)[0].status == 200


async def ask(port: int, method: bytes, path: str, more: bytes = b"") -> Told:
    line = method + b" " + path.encode() + b" HTTP/1.1\r\n"
    (answer,) = await told(port, line + END + more + b"\r\n")
    return answer


@pytest.fixture
def asset() -> tuple[str, bytes]:
    """The path of a file, and what is in it."""
    found = finders.find(NAME)
    assert isinstance(found, str)
    with open(found, "rb") as file:
        return f"/static/{NAME}", file.read()


async def test_files_come_while_pages_have_no_place(
    monkeypatch: pytest.MonkeyPatch, port: int, asset: tuple[str, bytes]
) -> None:
    monkeypatch.setattr(static_files, "PIECE_BYTES", 1_000)
    path, content = asset
    answer = await ask(port, b"GET", path)
    assert (answer.status, answer.body) == (200, content)
    part = await ask(port, b"GET", path, b"Range: bytes=10-19\r\n")
    assert (part.status, part.body) == (206, content[10:20])
    same = await ask(port, b"GET", path, f"If-None-Match: {answer.headers['etag']}\r\n".encode())
    assert (same.status, same.body) == (304, b"")


async def test_pages_come_with_their_files(asset: tuple[str, bytes]) -> None:
    path, content = asset
    entrance = build("web")
    async with serving_app(entrance) as port:
        answer = await ask(port, b"GET", path)
        missing = await ask(port, b"GET", "/static/nothing.css")
        changed = await ask(port, b"DELETE", path)
    assert (answer.status, answer.body) == (200, content)
    assert (missing.status, changed.status) == (404, 404)
    entrance.probes.stop()


@pytest.mark.parametrize("proto", [b"", b"X-Forwarded-Proto: https\r\n"])
async def test_files_and_refusals_say_what_pages_say_for_safety(
    asset: tuple[str, bytes], proto: bytes
) -> None:
    with override_settings(**TLS):
        entrance = build("web")
        async with serving_app(entrance) as port:
            head = b"GET /static/nothing.css HTTP/1.1\r\n" + END + proto + b"\r\n"
            written = await talk(port, head)
            file = await ask(port, b"GET", asset[0], proto)
            endless = proto + b"Content-Length: 99999999\r\n"
            refused = await ask(port, b"POST", "/sign-in", endless)
        entrance.probes.stop()
    (page,) = answers(written)
    assert (page.status, file.status, refused.status) == (404, 200, 413)
    assert (HSTS in page.headers) == bool(proto)
    for name in (*SECURITY, *([HSTS] if proto else [])):
        assert file.headers[name] == refused.headers[name] == page.headers[name]
        assert written.lower().count(name.encode()) == 1
    assert (HSTS in file.headers) == (HSTS in refused.headers) == bool(proto)
