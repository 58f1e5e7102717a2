"""The search: what is found, by whom, and where it leads."""

import re
from uuid import uuid4

import pytest
from django.test import Client

from controlplane.core.permissions import Role
from controlplane.kernel.ids import public_id
from controlplane.tenants.keys import apikey_create, apikey_revoke
from controlplane.tenants.people.services import membership_set
from tests.browser.history import write_history
from tests.support.people import Cast, make_cast, signed_in


@pytest.fixture
def cast(database: str) -> Cast:
    """Alice, Bob and Charlie."""
    return make_cast()


def _found(client: Client, query: str) -> list[tuple[str, str]]:
    """Kind and name of each, as htmx gets them."""
    answer = client.get("/find", {"q": query}, headers={"HX-Request": "true"})
    assert answer.status_code == 200
    pattern = r'<span class="break">(.*?)</span>\s*<span class="note">([A-Z][a-z]+)'
    return [(kind, name) for name, kind in re.findall(pattern, answer.content.decode())]


def test_pages_and_names_are_found(cast: Cast) -> None:
    apikey_create(actor=cast.alice, project=cast.project, label="Night owl")
    alice = signed_in(cast.alice)
    assert ("Key", "Night owl") in _found(alice, "night OWL")
    assert ("Member", cast.bob.email) in _found(alice, cast.bob.email[:5])
    assert ("Project", cast.project.name) in _found(alice, cast.project.name)
    assert ("Page", "Ledger") in _found(alice, "ledg")
    assert _found(alice, "no such thing") == []


def test_nothing_of_others_and_nothing_beyond_a_role_is_found(cast: Cast) -> None:
    key = apikey_create(actor=cast.alice, project=cast.project, label="Night owl").key
    request = public_id("req", write_history(cast, key, "tiny")[-1])
    charlie = signed_in(cast.charlie)
    assert _found(charlie, "night") == []
    assert _found(charlie, request) == []
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=Role.VIEWER)
    bob = signed_in(cast.bob)
    assert ("Page", "Ledger") not in _found(bob, "ledger")
    assert not [kind for kind, _ in _found(bob, "@") if kind == "Member"]


def test_a_request_is_found_by_every_form_of_its_id(cast: Cast) -> None:
    key = apikey_create(actor=cast.alice, project=cast.project, label="Night owl").key
    request = write_history(cast, key, "tiny")[-1]
    alice = signed_in(cast.alice)
    for form in (request.hex, str(request), f"req_{request.hex}", f"chatcmpl-{request.hex}"):
        assert _found(alice, f" {form} ") == [("Request", f"req_{request.hex}")]
    answer = alice.get("/find", {"q": f"chatcmpl-{request.hex}"})
    assert (answer.status_code, answer["Location"]) == (302, f"/requests/req_{request.hex}")
    unknown = alice.get("/find", {"q": f"req_{uuid4().hex}"})
    assert unknown.status_code == 200
    assert "Nothing found for" in unknown.content.decode()


def test_a_request_of_the_other_organization_says_so(cast: Cast) -> None:
    key = apikey_create(actor=cast.alice, project=cast.project, label="Night owl").key
    request = write_history(cast, key, "tiny")[-1]
    membership_set(actor=cast.charlie, organization=cast.other, user=cast.alice, role=Role.ADMIN)
    alice = signed_in(cast.alice)
    alice.post("/organization", {"organization": str(cast.other.id)})
    answer = alice.get("/find", {"q": request.hex}, headers={"HX-Request": "true"})
    assert f"Request · {cast.acme.name}" in answer.content.decode()


def test_a_revoked_key_is_found_as_such(cast: Cast) -> None:
    key = apikey_create(actor=cast.alice, project=cast.project, label="Night owl").key
    apikey_revoke(actor=cast.alice, key=key)
    answer = signed_in(cast.alice).get("/find", {"q": "owl"}, headers={"HX-Request": "true"})
    assert ", revoked" in answer.content.decode()


def test_the_page_without_a_script_lists_all_pages(cast: Cast) -> None:
    answer = signed_in(cast.alice).get("/find")
    assert answer.status_code == 200
    assert "Playground" in answer.content.decode()


def test_choosing_an_organization_stays_on_the_page(cast: Cast) -> None:
    membership_set(actor=cast.charlie, organization=cast.other, user=cast.alice, role=Role.VIEWER)
    alice = signed_in(cast.alice)

    def choose(organization: object, page: str) -> str:
        referer = {"Referer": f"http://testserver{page}"}
        answer = alice.post("/organization", {"organization": str(organization)}, headers=referer)
        return str(answer["Location"])

    assert choose(cast.other.id, "/latency?range=6h") == "/latency"
    # Viewers have no ledger, and a key belongs to one organization.
    assert choose(cast.other.id, "/ledger") == "/"
    assert choose(cast.acme.id, f"/keys/{uuid4().hex}") == "/"
    assert choose(cast.acme.id, "/no/such/page") == "/"
