"""A form that was sent when confirming was due: kept, sealed, and sent again once."""

import re
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client

import frontend.shared.stepup
from controlplane.kernel.clock import wall_s
from frontend.shared.stepup import FORM, FORM_BYTES_MAX
from tests.frontend.people.test_security import AHEAD_S, HERE, PASSWORD, late
from tests.support.people import Cast, give_password, make_cast, signed_in


@pytest.fixture
def cast(database: str) -> Cast:
    made = make_cast()
    for user in (made.alice, made.bob):
        give_password(user, PASSWORD)
    return made


def send_late(client: Client, **more: str) -> str:
    """Invite member when confirming is due; where the browser goes once that is done."""
    form = {"email": "x@example.org", "role": "viewer", **more}
    answer = client.post("/members/invite", form, headers={"Referer": f"{HERE}/members?a=1"})
    return parse_qs(urlsplit(answer.headers["Location"]).query)["next"][0]


def kept_fields(text: str) -> dict[str, str]:
    """Hidden fields of the page that sends a form again."""
    return {
        name: unescape(value)
        for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', text)
        if name != "csrfmiddlewaretoken"
    }


def test_a_form_that_was_sent_goes_on_once_after_confirming(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = signed_in(cast.alice)
    late(alice, monkeypatch)
    after = send_late(alice, note='a "quoted" <note>')
    assert after.startswith("/confirm/form?form=")
    assert "will continue automatically" in alice.get(f"/confirm?next={after}").content.decode()
    assert b"x@example.org" not in bytes.fromhex(alice.session[FORM])
    # Who knows its address still has to confirm.
    assert alice.get(after).headers["Location"].startswith("/confirm?next=")
    assert "x@example.org" not in alice.get("/members").content.decode()
    answer = alice.post("/confirm", {"password": PASSWORD, "next": after})
    assert answer.headers["Location"] == after
    text = alice.get(after).content.decode()
    fields = kept_fields(text)
    assert fields == {"email": "x@example.org", "role": "viewer", "note": 'a "quoted" <note>'}
    assert 'action="/members/invite"' in text and 'href="/members?a=1"' in text
    assert alice.post("/members/invite", fields).status_code == 200
    assert alice.get("/members").content.decode().count("x@example.org") >= 1
    # A reload cannot know whether it was sent.
    again = alice.get(after, follow=True).content.decode()
    assert "Check whether it was already submitted" in again and "Nothing was changed" not in again


def test_the_form_of_another_tab_is_left_alone(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = signed_in(cast.alice)
    late(alice, monkeypatch)
    first, second = send_late(alice, note="first"), send_late(alice, note="second")
    alice.post("/confirm", {"password": PASSWORD, "next": first})
    for gone in (first, "/confirm/form?form=other", "/confirm/form?form=%C3%A9", "/confirm/form"):
        assert alice.get(gone).headers["Location"] == "/"
    assert kept_fields(alice.get(second).content.decode())["note"] == "second"
    assert FORM not in alice.session


def test_a_form_that_waited_too_long_is_dropped_at_the_next_occasion(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = signed_in(cast.alice)
    late(alice, monkeypatch)
    for occasion in ("form", "confirm"):
        monkeypatch.setattr(frontend.shared.stepup, "wall_s", wall_s)
        send_late(alice)
        ahead_s = wall_s() + AHEAD_S
        monkeypatch.setattr(frontend.shared.stepup, "wall_s", lambda ahead_s=ahead_s: ahead_s)
        assert FORM in alice.session
        if occasion == "form":
            send_late(alice, password="never stored")
        else:
            alice.post("/confirm", {"password": PASSWORD})
        assert FORM not in alice.session, occasion


def test_a_kept_form_is_small_recent_and_its_senders(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = signed_in(cast.alice), signed_in(cast.bob)
    late(alice, monkeypatch)
    assert send_late(alice, note="x" * FORM_BYTES_MAX) == "/members?a=1"
    assert send_late(alice, password="once") == "/members?a=1"
    assert FORM not in alice.session
    after = send_late(alice)
    session = bob.session
    session[FORM] = alice.session[FORM]
    session.save()
    bob.post("/confirm", {"password": PASSWORD})
    assert bob.get(after).headers["Location"] == "/"
    ahead_s = wall_s() + 2 * AHEAD_S
    monkeypatch.setattr(frontend.shared.stepup, "wall_s", lambda: ahead_s)
    alice.post("/confirm", {"password": PASSWORD})
    assert alice.get(after).headers["Location"] == "/"
