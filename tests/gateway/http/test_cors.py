"""Browsers: the product's own pages may call the API from another origin, nobody else's may."""

from __future__ import annotations

import re

from controlplane.gateway.openai.description import OPERATIONS
from tests.support.serving import CHAT_PATH, Serving

PAGES = "https://pages.example"


async def ask(serving: Serving, origin: str) -> tuple[dict[str, str], dict[str, str]]:
    headers = {"origin": origin, "access-control-request-method": "POST"}
    before = await serving.client.options(CHAT_PATH, headers=headers)
    after = await serving.client.get("/v1/models", headers={"origin": origin})
    assert before.status_code == after.status_code == 200
    return dict(before.headers), dict(after.headers)


async def test_the_pages_origin_may_call_and_read(serving: Serving) -> None:
    serving.under_test.world.pages_origins = frozenset({PAGES})
    before, after = await ask(serving, PAGES)
    assert before["access-control-allow-origin"] == after["access-control-allow-origin"] == PAGES
    assert "authorization" in before["access-control-allow-headers"]
    assert "x-request-id" in after["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in before


async def test_delete_is_allowed_where_something_can_be_deleted(serving: Serving) -> None:
    serving.under_test.world.pages_origins = frozenset({PAGES})
    deleted = {path for path, method in OPERATIONS if method == "delete"}
    for path in {path for path, _ in OPERATIONS}:
        url = re.sub("{.*?}", "some", path)
        told = (await serving.client.options(url, headers={"origin": PAGES})).headers
        assert ("DELETE" in told["access-control-allow-methods"]) == (path in deleted), path


async def test_no_other_origin_may(serving: Serving) -> None:
    serving.under_test.world.pages_origins = frozenset({PAGES})
    for headers in await ask(serving, "https://elsewhere.example"):
        assert not [name for name in headers if name.startswith("access-control")]
