"""What a failed sign-in leaves behind, and whose it counts as."""

import json
from typing import Any

import pytest
from axes.models import AccessAttempt, AccessLog
from django.conf import settings
from django.test import Client

from controlplane.tenants.models import UserSession
from controlplane.tenants.sign_in import throttle
from tests.support.people import Cast, give_password, make_cast

PASSWORD = "correct-horse-battery-staple"
SECRET = "sent-amiss-47"
FIREFOX = f"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0 {SECRET}"


@pytest.fixture
def cast(database: str) -> Cast:
    made = make_cast()
    give_password(made.alice, PASSWORD)
    return made


def wrong(name: str, **headers: str) -> Any:
    """A failed sign-in."""
    form = {"username": name, "password": SECRET, "token": SECRET}
    return Client().post(f"/sign-in?key={SECRET}", form, headers=headers)


def test_nothing_that_was_sent_is_kept(cast: Cast) -> None:
    for _ in range(2):
        wrong(cast.alice.email, **{"user-agent": f"x {SECRET}", "accept": SECRET})
    kept = AccessAttempt.objects.values().get()
    assert kept["failures_since_start"] == 2
    assert kept["username"] == cast.alice.email
    assert SECRET not in json.dumps(kept, default=str)


def test_a_sign_in_keeps_the_browser_in_words_of_ours(cast: Cast) -> None:
    form = {"username": cast.alice.email, "password": PASSWORD}
    Client().post("/sign-in", form, headers={"user-agent": FIREFOX})
    assert UserSession.objects.get().device == "Firefox on Linux"
    assert not AccessLog.objects.exists()


def test_another_spelling_is_the_same_account(cast: Cast) -> None:
    name = cast.alice.email
    for turn in range(settings.AXES_FAILURE_LIMIT):
        wrong(name[:turn].upper() + name[turn:])
    form = {"username": name, "password": PASSWORD}
    assert Client().post("/sign-in", form).status_code == 429


def test_behind_our_proxy_one_client_does_not_lock_the_others(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "TRUSTED_PROXIES", ("127.0.0.1",))
    monkeypatch.setattr(throttle, "ADDRESS_FAILURES_MAX", 2)
    for turn in range(3):
        wrong(f"nobody{turn}@example.org", **{"x-forwarded-for": "192.0.2.7"})
    form = {"username": cast.alice.email, "password": PASSWORD}
    far = {"x-forwarded-for": "192.0.2.7"}
    assert Client().post("/sign-in", form, headers=far).status_code == 429
    other = Client()
    answer = other.post("/sign-in", form, headers={"x-forwarded-for": "192.0.2.8"})
    assert answer.headers["Location"] == "/"
    assert UserSession.objects.get().address == "192.0.2.8"


@pytest.mark.parametrize("code", ["é12345", "１２３４５６", ""])
def test_a_code_of_other_letters_is_a_wrong_code(cast: Cast, code: str) -> None:
    client = Client(raise_request_exception=False)
    client.post("/sign-in", {"username": cast.alice.email, "password": PASSWORD})
    assert client.post("/account/app", {"code": code}).status_code == 422
