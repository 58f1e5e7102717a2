"""Single sign-on against a real provider: who gets in, and which tokens prove nothing."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pyotp
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from django.conf import settings
from django.test import Client

from controlplane.core.permissions import Role
from controlplane.tenants.factors import app_add, app_secret
from controlplane.tenants.invitations import invitation_create
from controlplane.tenants.models import OutsideIdentity, User
from controlplane.tenants.people import membership_end, user_deactivate
from controlplane.tenants.selectors import organization_role
from controlplane.tenants.selectors_people import member_get
from tests.support.people import Cast, make_cast
from tests.support.provider import CLIENT_ID, CLIENT_SECRET, Provider, provider_running


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with provider_running() as running:
        for name, value in {
            "OIDC_ISSUER": running.issuer,
            "OIDC_CLIENT_ID": CLIENT_ID,
            "OIDC_CLIENT_SECRET": CLIENT_SECRET,
            "OIDC_NAME": "Example ID",
        }.items():
            monkeypatch.setattr(settings, name, value)
        yield running


def begin(client: Client, next_path: str = "/") -> dict[str, list[str]]:
    """Go to the provider; what it is asked."""
    answer = client.get("/sign-in/provider", {"next": next_path})
    return parse_qs(urlsplit(answer.headers["Location"]).query)


def come_back(client: Client, provider: Provider, asked: dict[str, list[str]], **more: Any) -> Any:
    """Return with a token of these claims."""
    provider.token = provider.sign(provider.claims(asked["nonce"][0], **more))
    return client.get("/sign-in/provider/done", {"state": asked["state"][0], "code": "c"})


def signed_in_as(client: Client) -> str | None:
    """The address of who is signed in."""
    user_id = client.session.get("_auth_user_id")
    return User.objects.get(id=user_id).email if user_id else None


def test_an_invited_person_gets_an_account(cast: Cast, provider: Provider) -> None:
    _, token = invitation_create(
        actor=cast.alice, organization=cast.acme, email="dora@example.org", role=Role.FINANCE
    )
    client = Client()
    asked = begin(client, f"/invitation/{token}")
    assert (asked["response_type"], asked["code_challenge_method"]) == (["code"], ["S256"])
    assert come_back(client, provider, asked).headers["Location"] == "/"
    assert signed_in_as(client) == "dora@example.org"
    dora = User.objects.get(email="dora@example.org")
    assert organization_role(user=dora, organization_id=cast.acme.id) is Role.FINANCE
    assert not dora.has_usable_password()
    assert provider.forms[0]["client_secret"] == [CLIENT_SECRET]
    # Known by subject from now on, whatever the address becomes.
    again = Client()
    come_back(again, provider, begin(again), email="other@example.org", email_verified=False)
    assert signed_in_as(again) == "dora@example.org"


def test_an_uninvited_person_stays_outside(cast: Cast, provider: Provider) -> None:
    client = Client()
    answer = come_back(client, provider, begin(client))
    assert answer.headers["Location"] == "/sign-in"
    assert signed_in_as(client) is None
    assert not User.objects.filter(email="dora@example.org").exists()


def test_a_member_is_linked_by_a_vouched_address_only(cast: Cast, provider: Provider) -> None:
    email = cast.bob.email
    client = Client()
    for vouched in (False, "true", None):
        come_back(client, provider, begin(client), email=email, email_verified=vouched)
        assert signed_in_as(client) is None
    come_back(client, provider, begin(client), email=email)
    assert signed_in_as(client) == email
    # Another subject who has that address now is somebody else.
    other = Client()
    come_back(other, provider, begin(other), email=email, sub="eve-1")
    assert signed_in_as(other) is None
    assert OutsideIdentity.objects.filter(user=cast.bob).count() == 1


def test_a_domain_lets_in_where_the_operator_says_so(
    cast: Cast, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "OIDC_DOMAIN", "example.org")
    monkeypatch.setattr(settings, "OIDC_ORGANIZATION", str(cast.acme.id))
    monkeypatch.setattr(settings, "OIDC_ROLE", Role.DEVELOPER)
    client = Client()
    come_back(client, provider, begin(client), email="eve@notexample.org", sub="eve")
    assert signed_in_as(client) is None
    come_back(client, provider, begin(client))
    dora = User.objects.get(email=signed_in_as(client))
    assert organization_role(user=dora, organization_id=cast.acme.id) is Role.DEVELOPER
    found = member_get(actor=cast.alice, organization_id=cast.acme.id, user_id=dora.id)
    membership_end(actor=cast.alice, membership=found)
    again = Client()
    come_back(again, provider, begin(again))
    assert organization_role(user=dora, organization_id=cast.acme.id) is None


def test_a_closed_account_stays_closed(cast: Cast, provider: Provider) -> None:
    client = Client()
    come_back(client, provider, begin(client), email=cast.bob.email)
    user_deactivate(actor=cast.stella, user=cast.bob)
    come_back(client, provider, begin(client), email=cast.bob.email)
    assert signed_in_as(client) is None


def test_the_second_factor_is_asked_for_here_too(cast: Cast, provider: Provider) -> None:
    secret = app_secret()
    app_add(user=cast.bob, secret=secret, code=pyotp.TOTP(secret).now())
    client = Client()
    answer = come_back(client, provider, begin(client), email=cast.bob.email)
    assert answer.headers["Location"] == "/sign-in/second"
    assert signed_in_as(client) is None


WRONG_CLAIMS: dict[str, dict[str, Any]] = {
    "another audience": {"aud": "somebody-else"},
    "several audiences": {"aud": [CLIENT_ID, "other"], "azp": "other"},
    "another issuer": {"iss": "https://evil.example"},
    "over": {"exp": 1_000_000_000},
    "another nonce": {"nonce": "x"},
    "no subject": {"sub": ""},
}


@pytest.mark.parametrize("case", WRONG_CLAIMS)
def test_wrong_claims_prove_nothing(cast: Cast, provider: Provider, case: str) -> None:
    client = Client()
    come_back(client, provider, begin(client), email=cast.bob.email, **WRONG_CLAIMS[case])
    assert signed_in_as(client) is None


@pytest.mark.parametrize("case", ["none", "symmetric", "other key", "cut", "empty"])
def test_wrong_signatures_prove_nothing(cast: Cast, provider: Provider, case: str) -> None:
    client = Client()
    asked = begin(client)
    claims = provider.claims(asked["nonce"][0], email=cast.bob.email)
    good = provider.sign(claims)
    provider.token = {
        "none": jwt.encode(claims, "", "none"),
        "symmetric": provider.sign(claims, key=CLIENT_SECRET, algorithm="HS256"),
        "other key": provider.sign(claims, key=generate_private_key(65_537, 2_048)),
        "cut": good[:-4],
        "empty": "",
    }[case]
    answer = {"state": asked["state"][0], "code": "c"}
    client.get("/sign-in/provider/done", answer)
    assert signed_in_as(client) is None


def test_a_sign_in_that_was_not_begun_here_is_refused(cast: Cast, provider: Provider) -> None:
    client, other = Client(), Client()
    asked = begin(other)
    begin(client)
    provider.token = provider.sign(provider.claims(asked["nonce"][0], email=cast.bob.email))
    client.get("/sign-in/provider/done", {"state": asked["state"][0], "code": "c"})
    assert signed_in_as(client) is None
    come_back(other, provider, asked, email=cast.bob.email)
    assert signed_in_as(other) == cast.bob.email
    # The same answer a second time is none.
    fresh = Client()
    fresh.get("/sign-in/provider/done", {"state": asked["state"][0], "code": "c"})
    assert signed_in_as(fresh) is None


def test_without_a_provider_there_is_no_such_page(cast: Cast) -> None:
    assert Client().get("/sign-in/provider").status_code == 404
    assert "Sign in with" not in Client().get("/sign-in").content.decode()
