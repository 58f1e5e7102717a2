"""Sign-in in two steps, step-up, sessions and passwords through Django's client."""

import re
from datetime import timedelta
from typing import Any

import pyotp
import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from controlplane.core.api import stepup
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.seal import BrokenSeal
from controlplane.core.tasks import sessions_forget
from controlplane.kernel.clock import wall_s
from controlplane.tenants.models import SecondFactor, User, UserSession
from controlplane.tenants.sign_in import factors, throttle
from controlplane.tenants.sign_in.accounts import setup_link_create
from controlplane.tenants.sign_in.factors import (
    app_add,
    app_secret,
    app_secret_kept,
    code_use,
    factors_reset,
    has_factors,
    recovery_codes_left,
)
from frontend.people.account_views import APP_SECRET
from tests.support.people import Cast, give_password, make_cast, signed_in

PASSWORD = "correct-horse-battery-staple"
OTHER_PASSWORD = "battery-staple-correct-horse"
STEP_S = factors.STEP_S
TRIES = 7
HERE = "http://testserver"
AHEAD_S = stepup.CONFIRMED_S_MAX + 1


@pytest.fixture
def cast(database: str) -> Cast:
    made = make_cast()
    for user in (made.alice, made.bob):
        give_password(user, PASSWORD)
    return made


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> "Now":
    return Now(monkeypatch)


class Now:
    """The clock that codes are made by; it moves when told."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.at_s = 1_800_000_000.0
        patch.setattr("controlplane.tenants.sign_in.factors.wall_s", lambda: self.at_s)

    def code(self, secret: str) -> str:
        """What the app shows."""
        return pyotp.TOTP(secret).at(int(self.at_s))


def password_step(client: Client, user: User, password: str = PASSWORD, **more: str) -> Any:
    """The answer to the first form."""
    form = {"username": user.email, "password": password}
    return client.post("/sign-in", form, headers=more)


def with_app(user: User, now: Now) -> tuple[str, list[str]]:
    """An app's secret and the recovery codes."""
    secret = app_secret()
    codes = app_add(user=user, secret=secret, code=now.code(secret))
    now.at_s += 2 * STEP_S
    return secret, codes


def late(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 15 minutes pass."""
    ahead_s = wall_s() + AHEAD_S
    monkeypatch.setattr(stepup, "wall_s", lambda: ahead_s)


def test_without_a_second_factor_the_password_is_enough(cast: Cast) -> None:
    client = Client()
    assert password_step(client, cast.bob).headers["Location"] == "/"
    assert client.get("/keys").status_code == 200


def test_a_password_alone_opens_nothing_where_there_is_an_app(cast: Cast, now: Now) -> None:
    secret, _ = with_app(cast.alice, now)
    client = Client()
    answer = client.post(
        "/sign-in?next=/keys", {"username": cast.alice.email, "password": PASSWORD}
    )
    assert answer.headers["Location"] == "/sign-in/second"
    assert client.get("/").headers["Location"].startswith("/sign-in")
    assert client.post("/sign-in/second", {"code": "000000"}).status_code == 422
    answer = client.post("/sign-in/second", {"code": now.code(secret)})
    assert answer.headers["Location"] == "/keys"
    assert client.get("/keys").status_code == 200


def test_a_code_works_once(cast: Cast, now: Now) -> None:
    secret, _ = with_app(cast.alice, now)
    code = now.code(secret)
    assert code_use(user=cast.alice, code=code)
    assert not code_use(user=cast.alice, code=code)
    now.at_s += STEP_S
    assert not code_use(user=cast.alice, code=code)
    assert code_use(user=cast.alice, code=now.code(secret))
    now.at_s += 3 * STEP_S
    old = pyotp.TOTP(secret).at(int(now.at_s) - 2 * STEP_S)
    assert not code_use(user=cast.alice, code=old)


def test_a_recovery_code_works_once_in_any_spelling(cast: Cast, now: Now) -> None:
    _, codes = with_app(cast.alice, now)
    client = Client()
    password_step(client, cast.alice)
    typed = codes[0].upper().replace("-", " ")
    assert client.post("/sign-in/second", {"code": typed}).headers["Location"] == "/"
    assert not code_use(user=cast.alice, code=codes[0])
    assert recovery_codes_left(user=cast.alice) == len(codes) - 1
    assert not code_use(user=cast.bob, code=codes[1])


def test_the_first_step_does_not_last(
    cast: Cast, now: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, _ = with_app(cast.alice, now)
    client = Client()
    password_step(client, cast.alice)
    ahead_s = wall_s() + 301
    monkeypatch.setattr("frontend.people.signing.wall_s", lambda: ahead_s)
    answer = client.post("/sign-in/second", {"code": now.code(secret)})
    assert answer.headers["Location"] == "/sign-in"


def test_a_one_time_link_does_not_pass_by_the_second_factor(cast: Cast, now: Now) -> None:
    with_app(cast.alice, now)
    token = setup_link_create(actor=OPERATOR, user=cast.alice)
    client = Client()
    answer = client.post(f"/setup/{token}", {"password": OTHER_PASSWORD, "again": OTHER_PASSWORD})
    assert answer.headers["Location"] == "/sign-in/second"
    assert client.get("/").status_code == 302


def test_guessing_codes_locks_as_guessing_passwords_does(cast: Cast, now: Now) -> None:
    secret, _ = with_app(cast.alice, now)
    client = Client()
    for _ in range(settings.AXES_FAILURE_LIMIT):
        password_step(client, cast.alice)
        client.post("/sign-in/second", {"code": "000000"})
    answer = client.post("/sign-in/second", {"code": now.code(secret)})
    assert answer.status_code == 429
    assert password_step(Client(), cast.alice).status_code == 429


@pytest.mark.parametrize("bound", ["account", "address"])
def test_many_addresses_or_many_accounts_lock_too(
    cast: Cast, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, f"{bound.upper()}_FAILURES_MAX", TRIES)
    for turn in range(TRIES):
        address = f"10.0.0.{turn}" if bound == "account" else "10.9.9.9"
        name = cast.alice.email if bound == "account" else f"nobody{turn}@example.org"
        Client(REMOTE_ADDR=address).post("/sign-in", {"username": name, "password": "x" * 12})
    locked = Client(REMOTE_ADDR="10.8.8.8" if bound == "account" else "10.9.9.9")
    assert password_step(locked, cast.alice).status_code == 429
    # A header that anybody can send does not make another client of them.
    spoofed = password_step(locked, cast.alice, **{"X-Forwarded-For": "192.0.2.7"})
    assert spoofed.status_code == 429
    free = password_step(Client(REMOTE_ADDR="10.7.7.7"), cast.bob)
    assert free.headers["Location"] == "/"


def test_secrets_of_apps_are_sealed_to_their_row(cast: Cast, now: Now) -> None:
    secret, _ = with_app(cast.alice, now)
    factor = SecondFactor.objects.get(user=cast.alice)
    assert secret.encode() not in bytes(factor.material)
    with_app(cast.bob, now)
    SecondFactor.objects.filter(user=cast.bob).update(material=bytes(factor.material))
    with pytest.raises(BrokenSeal):
        code_use(user=cast.bob, code=now.code(secret))


def test_an_app_is_added_by_its_code_and_removed(cast: Cast, now: Now) -> None:
    alice = signed_in(cast.alice)
    text = alice.get("/account/app").content.decode()
    found = re.search(r'<code class="secret">([A-Z2-7]+)</code>', text)
    assert found is not None and "<svg" in text
    secret = found[1]
    # The session, which is a row of a table, has it sealed; a mistyped code keeps it.
    kept = alice.session[APP_SECRET]
    assert secret not in kept and secret.encode() not in bytes.fromhex(kept)
    assert secret in alice.post("/account/app", {"code": "000000"}).content.decode()
    assert app_secret_kept(user=cast.bob, kept=kept)[0] != secret
    assert alice.post("/account/app", {"code": "000000"}).status_code == 422
    text = alice.post("/account/app", {"code": now.code(secret)}).content.decode()
    assert len(re.findall(r"\b[0-9a-f]{5}(?:-[0-9a-f]{5}){3}\b", text)) == factors.RECOVERY_CODES
    factor = SecondFactor.objects.get(user=cast.alice)
    assert signed_in(cast.bob).post(f"/account/factors/{factor.id.hex}").status_code == 404
    alice.post(f"/account/factors/{factor.id.hex}")
    assert not has_factors(user=cast.alice)
    assert recovery_codes_left(user=cast.alice) == 0


def test_lost_factors_are_reset_by_staff(cast: Cast, now: Now) -> None:
    with_app(cast.alice, now)
    assert factors_reset(actor=cast.stella, user=cast.alice) == 1
    assert password_step(Client(), cast.alice).headers["Location"] == "/"


def test_money_and_secrets_ask_again_after_a_while(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = signed_in(cast.alice)
    late(alice, monkeypatch)
    assert alice.get("/account/app").headers["Location"] == "/confirm?next=%2Faccount%2Fapp"
    answer = alice.post("/account/app", {"code": "1"}, headers={"Referer": f"{HERE}/account"})
    assert answer.headers["Location"] == "/confirm?next=%2Faccount"
    assert "then submit the form again" in alice.get(answer.headers["Location"]).content.decode()
    assert alice.post("/confirm", {"password": "wrong", "next": "/members"}).status_code == 422
    answer = alice.post("/confirm", {"password": PASSWORD, "next": "/members"})
    assert answer.headers["Location"] == "/members"
    assert alice.get("/account/app").status_code == 200


def test_confirming_asks_for_the_second_factor_where_there_is_one(
    cast: Cast, now: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, _ = with_app(cast.alice, now)
    alice = signed_in(cast.alice)
    late(alice, monkeypatch)
    alice.post("/confirm", {"password": PASSWORD})
    assert alice.get("/account/app").status_code == 302
    alice.post("/confirm", {"code": now.code(secret)})
    assert alice.get("/account/app").status_code == 200


def test_one_confirmed_session_does_not_confirm_another(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, elsewhere = signed_in(cast.alice), signed_in(cast.alice)
    late(alice, monkeypatch)
    alice.post("/confirm", {"password": PASSWORD})
    assert alice.get("/account/app").status_code == 200
    assert elsewhere.get("/account/app").status_code == 302


@pytest.mark.parametrize("path", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_confirming_leads_to_this_site_only(cast: Cast, path: str) -> None:
    alice = signed_in(cast.alice)
    assert alice.post("/confirm", {"password": PASSWORD, "next": path}).headers["Location"] == "/"


def test_the_api_says_that_it_wants_a_confirmation(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, path = signed_in(cast.alice), f"/api/organizations/{cast.acme.id}/invitations"
    body = {"email": "x@example.org", "role": "viewer"}
    late(alice, monkeypatch)
    answer = alice.post(path, body, content_type="application/json")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "step_up_required")
    assert alice.get(path).json()["data"] == []
    token = {"Authorization": f"Bearer {settings.OPERATOR_TOKEN}"}
    answer = Client().post(path, body, content_type="application/json", headers=token)
    assert answer.status_code == 201


def test_sessions_are_listed_and_end(cast: Cast) -> None:
    desk, phone = signed_in(cast.bob), signed_in(cast.bob)
    desk.get("/", headers={"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"})
    agent = {"User-Agent": "Mozilla/5.0 (iPhone) Safari/605"}
    phone.get("/", headers=agent, REMOTE_ADDR="192.0.2.9")
    text = desk.get("/account").content.decode()
    assert "Firefox on Linux" in text and "Safari on iPhone" in text and "192.0.2.9" in text
    assert text.count("this session") == 1
    row = UserSession.objects.get(user=cast.bob, address="192.0.2.9")
    assert signed_in(cast.alice).post(f"/account/sessions/{row.id.hex}").status_code == 404
    desk.post(f"/account/sessions/{row.id.hex}")
    assert phone.get("/").headers["Location"].startswith("/sign-in")
    assert desk.get("/").status_code == 200


def test_a_session_whose_key_changed_is_listed_and_ends(cast: Cast) -> None:
    desk, phone = signed_in(cast.bob), signed_in(cast.bob)
    phone.get("/", REMOTE_ADDR="192.0.2.9")
    session = phone.session
    session.cycle_key()
    phone.cookies[settings.SESSION_COOKIE_NAME] = str(session.session_key)
    assert phone.get("/", REMOTE_ADDR="192.0.2.9").status_code == 200
    row = UserSession.objects.get(user=cast.bob, address="192.0.2.9")
    desk.post(f"/account/sessions/{row.id.hex}")
    assert phone.get("/").headers["Location"].startswith("/sign-in")


def test_sessions_that_ran_out_are_dropped(cast: Cast) -> None:
    old, new = signed_in(cast.bob), signed_in(cast.bob)
    Session.objects.filter(session_key=old.session.session_key).update(
        expire_date=timezone.now() - timedelta(days=1)
    )
    sessions_forget()
    kept = set(Session.objects.values_list("session_key", flat=True))
    assert kept == {new.session.session_key}


def test_all_other_sessions_end_at_once(cast: Cast) -> None:
    desk, others = signed_in(cast.bob), [signed_in(cast.bob) for _ in range(3)]
    for client in (desk, *others):
        client.get("/")
    desk.post("/account/sessions/others")
    assert [client.get("/").status_code for client in others] == [302] * 3
    assert desk.get("/").status_code == 200
    assert UserSession.objects.filter(user=cast.bob).count() == 1


def test_a_changed_password_ends_other_sessions(cast: Cast) -> None:
    desk, phone = signed_in(cast.bob), signed_in(cast.bob)
    for client in (desk, phone):
        client.get("/")
    form = {"before": PASSWORD, "password": OTHER_PASSWORD, "again": OTHER_PASSWORD}
    assert desk.post("/account/password", form | {"before": "wrong"}).status_code == 422
    assert desk.post("/account/password", form).headers["Location"] == "/account"
    assert phone.get("/").status_code == 302
    assert desk.get("/").status_code == 200
    assert password_step(Client(), cast.bob).status_code == 200
    assert password_step(Client(), cast.bob, OTHER_PASSWORD).status_code == 302


def test_signing_out_takes_the_session_off_the_list(cast: Cast) -> None:
    bob = signed_in(cast.bob)
    bob.get("/")
    assert UserSession.objects.filter(user=cast.bob).count() == 1
    bob.post("/sign-out")
    assert not UserSession.objects.filter(user=cast.bob).exists()


def test_last_seen_moves_by_the_minute(cast: Cast) -> None:
    bob = signed_in(cast.bob)
    bob.get("/")
    first = UserSession.objects.get(user=cast.bob).last_seen_at
    bob.get("/")
    assert UserSession.objects.get(user=cast.bob).last_seen_at == first
    UserSession.objects.update(last_seen_at=first - timedelta(minutes=2))
    bob.get("/")
    assert UserSession.objects.get(user=cast.bob).last_seen_at >= first
