"""Single sign-on against a real provider: who gets in, and which tokens prove nothing."""

import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyotp
import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.test import Client
from joserfc.jwk import OctKey, RSAKey

from controlplane.core.api.stepup import recently_confirmed
from controlplane.core.permissions import Role
from controlplane.tenants.access import role_of
from controlplane.tenants.models import OutsideIdentity, User
from controlplane.tenants.people.services import invitation_create, user_deactivate
from controlplane.tenants.sign_in.factors import app_add, app_secret, has_factors
from tests.support.people import Cast, make_cast
from tests.support.provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    KEY_ID,
    Provider,
    oidc_provider,
    provider_running,
)

HERE = "/sign-in/provider/example"


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with provider_running() as running:
        monkeypatch.setattr(settings, "OIDC_PROVIDERS", (oidc_provider(running.issuer),))
        yield running


def begin(client: Client, next_path: str = "/", *, here: str = HERE) -> dict[str, list[str]]:
    """Go to the provider; what it is asked."""
    answer = client.get(here, {"next": next_path})
    return parse_qs(urlsplit(answer.headers["Location"]).query)


def come_back(
    client: Client,
    provider: Provider,
    asked: dict[str, list[str]],
    *,
    here: str = HERE,
    **more: Any,
) -> Any:
    """Return with a token of these claims."""
    provider.token = provider.sign(provider.claims(asked["nonce"][0], **more))
    return client.get(f"{here}/done", {"state": asked["state"][0], "code": "c"})


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
    assert role_of(dora, cast.acme.id) is Role.FINANCE
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
    rule = {"organization": f"org_{cast.acme.id.hex}", "role": "developer"}
    said = oidc_provider(provider.issuer, domains=["example.org"], roles=[rule])
    monkeypatch.setattr(settings, "OIDC_PROVIDERS", (said,))
    client = Client()
    come_back(client, provider, begin(client), email="eve@notexample.org", sub="eve")
    assert signed_in_as(client) is None
    come_back(client, provider, begin(client))
    dora = User.objects.get(email=signed_in_as(client))
    assert role_of(dora, cast.acme.id) is Role.DEVELOPER
    # A domain that is none of them is refused later, too.
    come_back(client := Client(), provider, begin(client), email="dora@notexample.org")
    assert signed_in_as(client) is None


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
    _, body, _ = good.split(".")
    unsigned = urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    symmetric = OctKey.import_key(CLIENT_SECRET, {"kid": KEY_ID})
    provider.token = {
        "none": f"{unsigned}.{body}.",
        "symmetric": provider.sign(claims, key=symmetric, algorithm="HS256"),
        "other key": provider.sign(claims, key=RSAKey.generate_key(2_048, {"kid": KEY_ID})),
        "cut": good[:-4],
        "empty": "",
    }[case]
    answer = {"state": asked["state"][0], "code": "c"}
    client.get(f"{HERE}/done", answer)
    assert signed_in_as(client) is None


def test_a_sign_in_that_was_not_begun_here_is_refused(cast: Cast, provider: Provider) -> None:
    client, other = Client(), Client()
    asked = begin(other)
    begin(client)
    provider.token = provider.sign(provider.claims(asked["nonce"][0], email=cast.bob.email))
    client.get(f"{HERE}/done", {"state": asked["state"][0], "code": "c"})
    assert signed_in_as(client) is None
    come_back(other, provider, asked, email=cast.bob.email)
    assert signed_in_as(other) == cast.bob.email
    # The same answer a second time is none.
    fresh = Client()
    fresh.get(f"{HERE}/done", {"state": asked["state"][0], "code": "c"})
    assert signed_in_as(fresh) is None


def test_without_a_provider_there_is_no_such_page(cast: Cast) -> None:
    assert Client().get(HERE).status_code == 404
    assert "Sign in with" not in Client().get("/sign-in").content.decode()


# Claims as each provider's documentation has them, beside those of every token.
KEYCLOAK = {"email_verified": True, "preferred_username": "bob", "azp": CLIENT_ID, "typ": "ID"}
GOOGLE: dict[str, Any] = {
    "email_verified": True,
    "azp": CLIENT_ID,
    "hd": "example.org",
    "at_hash": None,
}
ENTRA: dict[str, Any] = {"ver": "2.0", "tid": "t", "oid": "o", "email_verified": None}


@pytest.mark.parametrize("shape", [KEYCLOAK, GOOGLE], ids=["keycloak", "google"])
def test_a_sign_in_does_not_ask_for_the_password_again(
    cast: Cast, provider: Provider, shape: dict[str, Any]
) -> None:
    client = Client()
    asked = begin(client)
    assert not {"prompt", "max_age"} & set(asked)
    assert asked["scope"] == ["openid email profile"]
    come_back(client, provider, asked, **{**shape, "email": cast.bob.email})
    assert signed_in_as(client) == cast.bob.email


def test_entras_addresses_count_where_the_operator_trusts_them(
    cast: Cast, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = {**ENTRA, "email": None, "preferred_username": cast.bob.email.upper()}
    client = Client()
    come_back(client, provider, begin(client), **claims)
    assert signed_in_as(client) is None
    said = {"email_trusted": True, "email_claim": "preferred_username", "domains": ["example.org"]}
    monkeypatch.setattr(settings, "OIDC_PROVIDERS", (oidc_provider(provider.issuer, **said),))
    come_back(client, provider, begin(client), **{**claims, "preferred_username": "not an address"})
    assert signed_in_as(client) is None
    come_back(client, provider, begin(client), **claims)
    assert signed_in_as(client) == cast.bob.email


def test_an_issuer_of_all_tenants_is_refused(cast: Cast, provider: Provider) -> None:
    provider.says["issuer"] = "https://login.microsoftonline.com/{tenantid}/v2.0"
    assert Client().get(HERE).headers["Location"] == "/sign-in"


def test_where_the_secret_goes_is_the_providers_choice(cast: Cast, provider: Provider) -> None:
    provider.says.clear()
    client = Client()
    come_back(client, provider, begin(client), email=cast.bob.email)
    assert signed_in_as(client) == cast.bob.email
    assert "client_secret" not in provider.forms[0]


@pytest.mark.parametrize(
    ("shown_s_ago", "confirmed"),
    [(0, True), (-30, True), (600, True), (3_600, False), (None, False)],
)
def test_a_sign_in_confirms_as_of_when_the_provider_was_shown(
    cast: Cast, provider: Provider, shown_s_ago: int | None, confirmed: bool
) -> None:
    shown: dict[str, Any] = (
        {} if shown_s_ago is None else {"auth_time": int(time.time()) - shown_s_ago}
    )
    client = Client()
    come_back(client, provider, begin(client), email=cast.bob.email, **shown)
    assert signed_in_as(client) == cast.bob.email
    assert recently_confirmed(client.session) is confirmed


def test_confirming_asks_the_provider_anew_and_believes_it_alone(
    cast: Cast, provider: Provider
) -> None:
    client = Client()
    come_back(client, provider, begin(client), email=cast.bob.email)
    asked = confirming(client)
    assert asked["max_age"] == ["0"] and "prompt" not in asked
    for shown in ({}, {"auth_time": int(time.time()) - 600}, {"auth_time": "now"}):
        answer = come_back(client, provider, confirming(client), email=cast.bob.email, **shown)
        assert answer.headers["Location"] in ("/confirm", "/sign-in")
        assert not recently_confirmed(client.session)
    now = int(time.time())
    answer = come_back(client, provider, confirming(client), email=cast.bob.email, auth_time=now)
    assert answer.headers["Location"] == "/account"
    assert recently_confirmed(client.session)


def test_an_invitation_confirms_no_old_session_of_the_provider(
    cast: Cast, provider: Provider
) -> None:
    _, token = invitation_create(
        actor=cast.alice, organization=cast.acme, email="dora@example.org", role=Role.FINANCE
    )
    client = Client()
    long_ago = int(time.time()) - 3_600
    come_back(client, provider, begin(client, f"/invitation/{token}"), auth_time=long_ago)
    assert signed_in_as(client) == "dora@example.org"
    assert not recently_confirmed(client.session)


def test_who_can_confirm_in_no_other_way_adds_a_first_factor(
    cast: Cast, provider: Provider
) -> None:
    client = Client()
    come_back(client, provider, begin(client), **{**GOOGLE, "email": cast.bob.email})
    assert not recently_confirmed(client.session)
    assert client.post("/account/passkeys/new").status_code == 200
    secret = client.get("/account/app").context["secret"]
    now = int(time.time())
    client.post("/account/app", {"code": pyotp.TOTP(secret).at(now)})
    assert has_factors(user=cast.bob)
    # A second one needs the first, by which the session is confirmed.
    assert client.get("/account/app").headers["Location"].startswith("/confirm")
    client.post("/confirm", {"code": pyotp.TOTP(secret).at(now + 30)})
    assert recently_confirmed(client.session)


@pytest.mark.parametrize("case", ["late", "password"])
def test_others_do_not_add_one_unconfirmed(cast: Cast, provider: Provider, case: str) -> None:
    if case == "password":
        cast.bob.set_password("correct-horse-battery-9")
        cast.bob.save()
    client = Client()
    come_back(client, provider, begin(client), **{**GOOGLE, "email": cast.bob.email})
    if case == "late":
        session = client.session
        session["begun_at_s"] -= 15 * 60 + 1
        session.save()
    assert client.get("/account/app").headers["Location"].startswith("/confirm")


def confirming(client: Client) -> dict[str, list[str]]:
    """Go to the provider to confirm the session; what it is asked."""
    answer = client.get(HERE, {"next": "/account", "confirm": "1"})
    return parse_qs(urlsplit(answer.headers["Location"]).query)


def test_a_stranger_leaves_no_session_and_asks_the_provider_once(
    cast: Cast, provider: Provider
) -> None:
    for _ in range(3):
        begin(Client())
    assert not Session.objects.exists()
    assert provider.asked == ["/.well-known/openid-configuration"]


def test_new_keys_of_the_provider_are_looked_for(cast: Cast, provider: Provider) -> None:
    client = Client()
    come_back(client, provider, begin(client), email=cast.bob.email)
    provider.key = RSAKey.generate_key(2_048, {"kid": "two"})
    other = Client()
    come_back(other, provider, begin(other), email=cast.bob.email)
    assert signed_in_as(other) == cast.bob.email
    assert provider.asked.count("/keys") == 2


def test_a_cookie_that_is_not_ours_begins_nothing(cast: Cast, provider: Provider) -> None:
    client = Client()
    asked = begin(client)
    client.cookies["provider_ask"] = f"{client.cookies['provider_ask'].value}x"
    come_back(client, provider, asked, email=cast.bob.email)
    assert signed_in_as(client) is None


@pytest.mark.parametrize("done", [False, True], ids=["begin", "return"])
def test_a_provider_that_is_away_is_said_to_be(cast: Cast, provider: Provider, done: bool) -> None:
    client = Client()
    if done:
        asked = begin(client)
        provider.status = 502
        answer = come_back(client, provider, asked, email=cast.bob.email)
    else:
        provider.status = 502
        client.get(HERE)
        answer = client.get(HERE)
        # Asked once: who comes within seconds does not wait for it.
        assert len(provider.asked) == 1
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "60")
    assert "Example ID does not respond" in answer.content.decode()


def test_an_answer_that_leads_elsewhere_or_is_too_long_is_refused(
    cast: Cast, provider: Provider
) -> None:
    provider.says["filler"] = "x" * (1 << 20)
    assert Client().get(HERE).headers["Location"] == "/sign-in"
    del provider.says["filler"]
    provider.says["token_endpoint"] = "http://id.example.org/token"
    assert Client().get(HERE).headers["Location"] == "/sign-in"
