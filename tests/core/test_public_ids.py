"""Ids in what the API and the files say: the prefix of a kind, `_` and 32 hex digits, nothing else.

Every readable operation of the table of routes is asked, about one of each thing.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from django.http.response import HttpResponseBase
from django.test import Client
from django.urls.converters import get_converters

from controlplane.kernel.ids import PREFIXES, public_id, uuid_of
from tests.core.callers import ADMIN_KEY, OPERATOR, STAFF
from tests.core.route import Route
from tests.core.routes import ROUTES
from tests.core.samples import Things, make_things
from tests.core.test_authorization_matrix import address, sample
from tests.support.servers import Servers, drop_database, make_database

PUBLIC = re.compile(r"[a-z]+_[0-9a-f]{32}")
# A UUID as SQL prints it, or digits without a prefix; hashes are longer.
OTHER_FORM = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<![0-9a-f_])[0-9a-f]{32}(?![0-9a-f])"
)
FIELD = re.compile(r"id|.*_id|(Billing|Sub)AccountId|x_(Credential|Entry)Id")
# Not ours: a tax number, and what clients call end users and servers their calls of tools. What
# names the first and the last row, which are looked at themselves. Of no row: the operator, and in
# the margin a pool or a model.
# Of a project, a key, a model or an hour.
OF_GROUPS = {
    ("BillingMarginLineJson", "id"), ("ChangesCostGroup", "id"), ("ChangesRefusedGroup", "id"),
    ("RoutingMovedGroup", "id"), ("RoutingTenantSizes", "id"),
}  # fmt: skip
OTHERS = {"tax_id", "first_id", "last_id", "user_id"}
CALL = re.compile("call_[0-9]+")
WORDS = {"", "operator"}
# What is no text of a page; and where its links lead, without the place on the page.
MARKUP = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)
PARAMETER = re.compile(r"<(\w+):(\w+)>")
LINK = re.compile(r'(?:href|action)="([^"#]*)')
ANSWERS_MIN, FILES_MIN, IDS_MIN, PAGES_MIN = 40, 6, 100, 40


@pytest.fixture(scope="module")
def things(servers: Servers) -> Iterator[Things]:
    """One of each; what is asked changes nothing."""
    make_database(servers.postgres)
    yield make_things()
    drop_database(servers.postgres)


def public_address(route: Route, things: Things) -> str:
    """Where a client that copies ids from answers asks for it; pages print their own address."""
    converters = get_converters()

    def said(one: re.Match[str]) -> str:
        value = sample(route.path[: one.start()], one[2]).said(things)
        prefix = getattr(converters[one[1]], "prefix", "")
        return public_id(prefix, uuid_of(str(value))) if prefix else str(value)

    return address(replace(route, path=PARAMETER.sub(said, route.path)), things)


def read(things: Things, caller: str) -> Iterator[tuple[str, HttpResponseBase, str]]:
    """Of each operation that reads: where, the answer and its text."""
    client = things.callers.client(caller)
    for route in (one for one in ROUTES if one.method == "GET"):
        answer = client.get(public_address(route, things))
        content = b"".join(answer) if answer.streaming else answer.content
        if answer.status_code == 200:
            yield route.path, answer, content.decode(errors="replace")


def fields(told: Any) -> Iterator[tuple[str, Any]]:
    """Every field of an answer, however deep."""
    if isinstance(told, dict):
        yield from told.items()
    for one in told.values() if isinstance(told, dict) else told if isinstance(told, list) else ():
        yield from fields(one)


def wrong(found: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Fields that should be ids and are none."""
    return [
        (name, value)
        for name, value in found
        if FIELD.fullmatch(name) and name not in OTHERS and value is not None
        if value not in WORDS and not (PUBLIC.fullmatch(str(value)) or CALL.fullmatch(str(value)))
    ]


def test_ids_in_answers_of_the_api_have_the_prefix_of_their_kind(things: Things) -> None:
    answers = ids = 0
    bad: dict[str, object] = {}
    for caller in (OPERATOR, ADMIN_KEY):
        for path, answer, text in read(things, caller):
            if answer["Content-Type"] != "application/json" or path == "api/schema":
                continue
            told = json.loads(text)
            found = list(fields(told))
            if told.get("object") == "list" and told["data"] and "id" in told["data"][0]:
                ends = [told["data"][0]["id"], told["data"][-1]["id"]]
                assert [told["first_id"], told["last_id"]] == ends, path
            answers, ids = answers + 1, ids + len(PUBLIC.findall(text))
            if ugly := wrong(found) or OTHER_FORM.findall(text):
                bad[path] = ugly
    assert bad == {}
    assert answers >= ANSWERS_MIN and ids >= IDS_MIN


def test_ids_in_csv_files_have_the_prefix_of_their_kind(things: Things) -> None:
    files = 0
    bad: dict[str, object] = {}
    for caller in ("owner", STAFF, OPERATOR):
        for path, answer, text in read(things, caller):
            if not answer["Content-Type"].startswith("text/csv"):
                continue
            files += 1
            found = [pair for row in csv.DictReader(StringIO(text)) for pair in row.items()]
            if ugly := wrong([pair for pair in found if pair[1]]) or OTHER_FORM.findall(text):
                bad[path] = ugly
    assert bad == {}
    assert files >= FILES_MIN


def test_ids_in_texts_and_links_of_pages_have_the_prefix_of_their_kind(things: Things) -> None:
    pages = 0
    bad: dict[str, object] = {}
    for caller in ("owner", STAFF):
        for path, answer, text in read(things, caller):
            if not answer["Content-Type"].startswith("text/html"):
                continue
            pages += 1
            links = LINK.findall(text)
            if ugly := OTHER_FORM.findall(MARKUP.sub(" ", text)) or OTHER_FORM.findall(str(links)):
                bad[path] = ugly
    assert bad == {}
    assert pages >= PAGES_MIN


def test_an_id_of_another_kind_is_refused_and_named(things: Things) -> None:
    acme = things.cast.acme.id
    client = Client(headers={"Authorization": f"Bearer {things.callers.token(OPERATOR)}"})
    base = f"/api/organizations/{public_id('org', acme)}"
    body = {"project": public_id("key", things.cast.project.id), "label": "x"}
    answer = client.post(f"{base}/keys", body, "application/json")
    assert (answer.status_code, list(answer.json()["error"]["fields"])) == (400, ["project"])
    answer = client.get(f"{base}/keys?after={public_id('org', acme)}")
    assert (answer.status_code, list(answer.json()["error"]["fields"])) == (400, ["after"])
    answer = client.get(f"/api/organizations/{public_id('proj', acme)}/keys")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")


def test_every_form_of_an_id_is_taken(things: Things) -> None:
    acme, project = things.cast.acme.id, things.cast.project.id
    client = Client(headers={"Authorization": f"Bearer {things.callers.token(OPERATOR)}"})
    for form in (str, lambda one: one.hex, lambda one: public_id("proj", one)):
        path = f"/api/organizations/{public_id('org', acme)}/projects/{form(project)}"
        assert client.get(path).json()["id"] == public_id("proj", project)


def test_the_description_states_the_form_of_each_id(things: Things) -> None:
    client = things.callers.client(OPERATOR)
    told = client.get("/api/schema").json()
    named = [
        (shape, name)
        for shape, schema in told["components"]["schemas"].items()
        for name, field in schema.get("properties", {}).items()
        if (shape, name) not in OF_GROUPS
        if name == "id" or (name.endswith("_id") and name not in OTHERS)
        if "_[0-9a-f]{32}$" not in json.dumps(field) and field != {"type": "null"}
    ]
    assert named == []
    text = json.dumps(told["paths"])
    assert all(f"^{PREFIXES[kind]}_" in text for kind in ("organization", "project", "apikey"))
