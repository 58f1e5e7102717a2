"""Names and hardware of nodes are told to staff alone: on every page, in every file and answer."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.db import transaction

from controlplane.core.permissions import organization_scope
from controlplane.fleet.models import Node
from controlplane.telemetry.models import RequestRecord
from tests.core.callers import ADMIN_KEY, STAFF
from tests.core.routes import ROUTES
from tests.core.samples import Things, make_things
from tests.core.test_authorization_matrix import address
from tests.support.servers import Servers, drop_database, make_database

FACTS = {"engine": "enginex 9", "device": "Imaginary X900", "dtype": "e9m9"}
# The nodes of the history's receipts, what their costs are called, and the hardware of one.
NODES = re.compile(r"node-[12]\b|enginex|Imaginary|e9m9|queued_tokens|Total cost")
PATHS = sorted({route.path for route in ROUTES if route.method == "GET"})
LISTS = ("/requests?range=6h", "/requests.csv?range=6h")


@pytest.fixture(scope="module")
def things(servers: Servers) -> Iterator[Things]:
    make_database(servers.postgres)
    made = make_things()
    Node.objects.filter(name="node-1").update(facts=FACTS)
    with organization_scope([made.cast.acme.id]):
        assert RequestRecord.objects.get(request=made.request).node == "node-1"
    yield made
    drop_database(servers.postgres)


def text_at(things: Things, caller: str, url: str) -> str:
    """Head and body of an answer; nothing of the call stays."""
    with transaction.atomic():
        answer = things.callers.client(caller).get(url)
        body = b"".join(answer) if answer.streaming else answer.content
        transaction.set_rollback(True)
    return f"{answer.status_code} {dict(answer.headers)} {body.decode(errors='replace')}"


@pytest.mark.parametrize("caller", ["owner", ADMIN_KEY])
def test_a_tenant_finds_no_node_anywhere(things: Things, caller: str) -> None:
    routes = {route.path: route for route in ROUTES if route.method == "GET"}
    urls = [*LISTS, *(address(routes[path], things) for path in PATHS)]
    found = {url: NODES.findall(text_at(things, caller, url)) for url in urls}
    assert {url: names for url, names in found.items() if names} == {}


def test_a_tenant_is_told_why_by_numbers_and_the_pool(things: Things) -> None:
    text = text_at(things, "owner", f"/requests/{things.request.hex}")
    told = r"Node 1 had \d+ prompt tokens cached and the lowest expected cost\."
    assert re.search(told, text)
    assert "Node 1 (chosen)" in text and "Node 2" in text
    assert "<dt>Pool</dt><dd>default</dd>" in text and "<dt>Node</dt><dd>Node 1</dd>" in text
    assert "node" not in text_at(things, "owner", LISTS[1]).split("\r\n")[0]


def test_staff_see_nodes_their_hardware_and_costs(things: Things) -> None:
    text = text_at(things, STAFF, f"/requests/{things.request.hex}")
    assert re.search(r"node-1 had \d+ of \d+ prompt tokens", text)
    for words in ("node-1 (chosen)", "node-2", "Total cost, ms"):
        assert words in text
    assert "enginex 9 on Imaginary X900, e9m9" in text and '<a href="/fleet">Fleet</a>' in text
    for url in LISTS:
        assert "node-1" in text_at(things, STAFF, url), url
