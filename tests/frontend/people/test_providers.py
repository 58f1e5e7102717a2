"""Several providers at once: each by its name, and the answer of one is never another's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings
from django.test import Client

from controlplane.core.permissions import Role
from controlplane.tenants.people.services import invitation_create
from tests.frontend.people.test_provider import begin, come_back, signed_in_as
from tests.support.people import Cast, give_password, make_cast
from tests.support.provider import Provider, oidc_provider, provider_running

ONE, TWO = "/sign-in/provider/one", "/sign-in/provider/two"


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Provider, Provider]]:
    with provider_running() as one, provider_running() as two:
        found = (
            oidc_provider(one.issuer, id="one", name="First ID"),
            oidc_provider(two.issuer, id="two", name="Second <ID>"),
        )
        monkeypatch.setattr(settings, "OIDC_PROVIDERS", found)
        yield one, two


@pytest.mark.usefixtures("both")
def test_each_is_offered_by_its_name(cast: Cast) -> None:
    _, token = invitation_create(
        actor=cast.alice, organization=cast.acme, email="new@example.org", role=Role.VIEWER
    )
    for path, verb in (("/sign-in?next=/keys", "Sign in"), (f"/invitation/{token}", "Join")):
        shown = " ".join(Client().get(path).content.decode().split())
        for words, place in (("First ID", ONE), ("Second &lt;ID&gt;", TWO)):
            assert f"{verb} with {words}</a>" in shown and f'href="{place}?next=' in shown


def test_people_come_in_by_either(cast: Cast, both: tuple[Provider, Provider]) -> None:
    for provider, here in zip(both, (ONE, TWO), strict=True):
        client = Client()
        asked = begin(client, here=here)
        assert asked["redirect_uri"] == [f"http://testserver{here}/done"]
        come_back(client, provider, asked, here=here, email=cast.bob.email)
        assert signed_in_as(client) == cast.bob.email
    assert cast.bob.outside_identities.count() == 2


def test_what_one_answers_is_not_taken_for_the_others(
    cast: Cast, both: tuple[Provider, Provider]
) -> None:
    one, two = both
    for told, here, there in ((two, ONE, TWO), (one, ONE, TWO), (two, ONE, ONE)):
        client = Client()
        asked = begin(client, here=here)
        come_back(client, told, asked, here=there, email=cast.bob.email)
        assert signed_in_as(client) is None
    # A browser keeps what it has begun apart, too.
    paths = {Client().get(here).cookies["provider_ask"]["path"] for here in (ONE, TWO)}
    assert paths == {ONE, TWO}


def test_an_answer_that_names_another_issuer_is_refused(
    cast: Cast, both: tuple[Provider, Provider]
) -> None:
    one, two = both
    for issuer, who in ((two.issuer, None), (one.issuer, cast.bob.email)):
        client = Client()
        asked = begin(client, here=ONE)
        one.token = one.sign(one.claims(asked["nonce"][0], email=cast.bob.email))
        answer = {"state": asked["state"][0], "code": "c", "iss": issuer}
        client.get(f"{ONE}/done", answer)
        assert signed_in_as(client) == who


def test_only_those_that_know_a_person_confirm_them(
    cast: Cast, both: tuple[Provider, Provider]
) -> None:
    give_password(cast.bob, "correct-horse-battery-staple")
    client = Client()
    come_back(client, both[1], begin(client, here=TWO), here=TWO, email=cast.bob.email)
    shown = client.get("/confirm").content.decode()
    assert f"{TWO}?confirm=1" in shown and ONE not in shown


def test_one_that_is_away_leaves_the_other(cast: Cast, both: tuple[Provider, Provider]) -> None:
    one, two = both
    one.status = 502
    assert Client().get(ONE).status_code == 503
    client = Client()
    come_back(client, two, begin(client, here=TWO), here=TWO, email=cast.bob.email)
    assert signed_in_as(client) == cast.bob.email


@pytest.mark.usefixtures("both")
def test_one_that_is_not_named_is_not_there(cast: Cast) -> None:
    for path in ("/sign-in/provider/three", "/sign-in/provider/three/done"):
        assert Client().get(path).status_code == 404


def test_what_is_said_of_one_claim_vouches_for_no_other(
    cast: Cast, both: tuple[Provider, Provider], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`email_verified` is about `email`, and trust about addresses of the domains."""
    said = {"email_trusted": True, "email_claim": "preferred_username", "domain_claim": "hd"}
    found = oidc_provider(both[0].issuer, id="one", domains=["elsewhere.org"], **said)
    monkeypatch.setattr(settings, "OIDC_PROVIDERS", (found,))
    claims = {"hd": "elsewhere.org", "preferred_username": cast.bob.email}
    client = Client()
    asked = begin(client, here=ONE)
    come_back(client, both[0], asked, here=ONE, **claims, email="eve@elsewhere.org")
    assert signed_in_as(client) is None
