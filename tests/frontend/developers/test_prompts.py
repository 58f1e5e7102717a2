"""The Templates pages through Django's client: who may, what they say, what their buttons do."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.test import Client

from controlplane.core.permissions import Role
from controlplane.tenants.people.services import membership_set
from tests.support.people import Cast, make_cast, signed_in

BODY = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "{{question}} <{{tone}}>"},
    ],
    "variables": [
        {"name": "question", "chars_max": 20},
        {"name": "tone", "type": "choice", "choices": ["dry", "warm"]},
    ],
}


@pytest.fixture
def cast(database: str) -> Cast:
    """People."""
    return make_cast()


@pytest.fixture
def bob(cast: Cast) -> Client:
    """A developer, with a template of one draft."""
    client = signed_in(cast.bob)
    assert client.post("/templates/new", {"name": "support"})["Location"] == "/templates/support/1"
    return client


def plain(answer: Any) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())).split())


def read(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return plain(answer)


def act(client: Client, path: str, **fields: object) -> str:
    """Where a button leads."""
    answer = client.post(f"/templates/support/{path}", fields)
    assert answer.status_code == 302, plain(answer)
    return str(answer["Location"])


def save(client: Client, version: int, body: object = BODY, revision: int = 1) -> str:
    return act(client, f"{version}/save", body=json.dumps(body), note="n", revision=revision)


def test_an_empty_page_says_what_to_do(cast: Cast) -> None:
    assert "Create the first template" in read(signed_in(cast.bob), "/templates")


def test_from_draft_to_publication_and_back(bob: Client) -> None:
    save(bob, 1)
    assert act(bob, "1/publish", revision=2) == "/templates/support/1"
    assert act(bob, "1/copy") == "/templates/support/2"
    save(bob, 2, {"messages": [{"role": "system", "content": "Be long."}]})
    page = read(bob, "/templates/support/2")
    assert '- "content": "Be brief."' in page and '+ "content": "Be long."' in page
    act(bob, "2/canary", revision=2, share="5")
    assert "for 5" in read(bob, "/templates/support/2")
    assert "version 2" in read(bob, "/templates")
    act(bob, "2/stop")
    assert act(bob, "1/copy") == "/templates/support/3"
    act(bob, "3/publish", revision=1)
    assert act(bob, "1/rollback") == "/templates/support/4"
    act(bob, "4/copy")
    act(bob, "5/discard")
    assert "rollback to version 1" in read(bob, "/templates/support/5")


def test_a_dry_run_shows_what_is_sent(bob: Client) -> None:
    save(bob, 1)
    page = read(bob, "/templates/support/1")
    assert "9 bytes before the first variable" in page
    assert "will not cache" in page
    values = {"value-question": "{{tone}}?", "value-tone": "warm"}
    tried = bob.post("/templates/support/1/try", values)
    assert "{{tone}}? <warm>" in html.unescape(tried.content.decode())
    wrong = bob.post("/templates/support/1/try", {**values, "value-question": "x" * 21})
    assert wrong.status_code == 422 and "variables.question" in plain(wrong)


def test_what_cannot_be_saved_stays_in_the_form(bob: Client) -> None:
    wrong = {"body": '{"messages": []}', "note": "", "revision": 1}
    answer = bob.post("/templates/support/1/save", wrong)
    assert answer.status_code == 422
    assert "body.messages" in plain(answer) and '{"messages": []}' in plain(answer)
    assert bob.post("/templates/support/1/save", {**wrong, "body": "{"}).status_code == 422
    late = {**wrong, "body": json.dumps(BODY), "revision": 7}
    assert bob.post("/templates/support/1/save", late).status_code == 409
    again = bob.post("/templates/new", {"name": "support"})
    assert again.status_code == 422 and "already" in plain(again)


def test_who_may(cast: Cast, bob: Client) -> None:
    assert signed_in(cast.charlie).get("/templates/support/1").status_code == 404
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=Role.VIEWER)
    assert bob.get("/templates").status_code == 403
    assert bob.post("/templates/support/1/publish", {"revision": 1}).status_code == 403
    assert signed_in(cast.alice).post("/templates/support/1/nothing").status_code == 404
