"""Readers of environment variables: typed, bounded, and loud about the variable's name."""

import re
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from controlplane.settings import env
from tests.tidy.test_documents import read

NAME = "SLUICE_TEST_VALUE"


def given(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(NAME, value)


@pytest.mark.parametrize(("word", "expected"), [("true", True), ("ON", True), ("0", False)])
def test_booleans(monkeypatch: pytest.MonkeyPatch, word: str, expected: bool) -> None:
    given(monkeypatch, word)
    assert env.boolean(NAME, not expected) is expected


def test_unset_and_empty_mean_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env.text(NAME, "fallback") == "fallback"
    given(monkeypatch, "  ")
    assert env.integer(NAME, 7, least=1, most=9) == 7
    assert env.words(NAME, ("a",)) == ("a",)
    assert env.url(NAME, ("redis",)) is None


def test_lists_and_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, "one, two,,")
    assert env.words(NAME) == ("one", "two")
    given(monkeypatch, "/srv/data")
    assert env.path(NAME, Path("/other")) == Path("/srv/data")


def test_wrong_values_name_their_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, "perhaps")
    with pytest.raises(ImproperlyConfigured, match=NAME):
        env.boolean(NAME, True)
    with pytest.raises(ImproperlyConfigured, match=NAME):
        env.integer(NAME, 1, least=0, most=9)
    with pytest.raises(ImproperlyConfigured, match=NAME):
        env.choice(NAME, "a", ("a", "b"))
    with pytest.raises(ImproperlyConfigured, match=NAME):
        env.url(NAME, ("redis", "unix"))


def test_a_share_is_between_none_and_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env.share(NAME, 0.5) == 0.5
    given(monkeypatch, "0.25")
    assert env.share(NAME, 1.0) == 0.25
    for word in ("1.5", "-0.1", "nan", "half"):
        given(monkeypatch, word)
        with pytest.raises(ImproperlyConfigured, match=NAME):
            env.share(NAME, 1.0)


def test_numbers_keep_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, "10")
    with pytest.raises(ImproperlyConfigured, match="0 to 9"):
        env.integer(NAME, 1, least=0, most=9)


def test_networks_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env.networks(NAME) == ()
    given(monkeypatch, "10.0.0.0/8 = eu, 2001:db8::/32=us")
    assert [(str(network), region) for network, region in env.networks(NAME)] == [
        ("10.0.0.0/8", "eu"),
        ("2001:db8::/32", "us"),
    ]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("10.0.0.0/8", "network=name"),
        ("10.0.0.0/8=", "network=name"),
        ("10.0.0.1/8=eu", "host bits"),
        ("ten/8=eu", "does not appear to be an IPv4 or IPv6 network"),
        ("10.0.0.0/8=eu,10.0.0.0/8=us", "twice"),
    ],
)
def test_a_wrong_network_is_named(monkeypatch: pytest.MonkeyPatch, value: str, told: str) -> None:
    given(monkeypatch, value)
    with pytest.raises(ImproperlyConfigured, match=f"{NAME}.*{told}"):
        env.networks(NAME)


def test_an_address_is_kept_as_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env.address(NAME, ("ws", "wss"), chars_max=40) == ""
    given(monkeypatch, "wss://gw:8443/fleet")
    assert env.address(NAME, ("ws", "wss"), chars_max=40) == "wss://gw:8443/fleet"


@pytest.mark.parametrize(
    "value", ["http://gw/fleet", "ws://", "ws://user:secret@gw/fleet", "ws://gw/" + "x" * 40]
)
def test_an_address_that_nobody_can_dial_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    given(monkeypatch, value)
    with pytest.raises(ImproperlyConfigured, match=NAME):
        env.address(NAME, ("ws", "wss"), chars_max=40)


def test_proxies_are_networks_or_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, "10.0.0.0/8, 192.0.2.7, 2001:db8::/32")
    assert env.network_list(NAME) == ("10.0.0.0/8", "192.0.2.7", "2001:db8::/32")
    for word in ("10.0.0.1/8", "proxy.internal", "10.0.0.0/33"):
        given(monkeypatch, word)
        with pytest.raises(ImproperlyConfigured, match=NAME):
            env.network_list(NAME)


SECRET = "SLUICE_STRIPE_SECRET"
SECRET_WORDS = re.compile(r"KEY|SECRET$|TOKEN|PASS|PEPPER|DATABASE.*_URL|REDIS_URL")
# They count or time keys and tokens.
NO_SECRETS = {
    "SLUICE_FIRST_TOKEN_S", "SLUICE_KEYS_PER_ORGANIZATION", "SLUICE_KEYS_PER_PROJECT",
    "SLUICE_TOKENS_MS", "SLUICE_TOKEN_GAP_S",
}  # fmt: skip


def test_each_secret_may_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text(" from-a-file\n")
    monkeypatch.setenv(f"{SECRET}_FILE", str(file))
    assert env.text(SECRET) == "from-a-file"
    monkeypatch.setenv("DATABASE_URL_FILE", str(file))
    file.write_text("postgres://sluice_app:secret@db/sluice")
    found = env.url("DATABASE_URL", ("postgres",))
    assert found is not None and found.password == "secret"
    # What is no secret is not looked for in files.
    monkeypatch.setenv(f"{NAME}_FILE", str(file))
    assert env.text(NAME, "fallback") == "fallback"


@pytest.mark.parametrize(
    ("value", "text", "told"),
    [("given", "also", "not both"), ("", "", "is empty"), ("", None, "No such file")],
)
def test_a_secrets_file_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, text: str | None, told: str
) -> None:
    file = tmp_path / "secret"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv(SECRET, value)
    monkeypatch.setenv(f"{SECRET}_FILE", str(file))
    with pytest.raises(ImproperlyConfigured, match=f"{SECRET}.*{told}"):
        env.text(SECRET)


def test_every_setting_that_is_a_secret_is_known_as_one() -> None:
    assert read() >= env.SECRETS
    named = {name for name in read() if SECRET_WORDS.search(name)} - NO_SECRETS
    # A document with secrets in it.
    assert named | {"SLUICE_OIDC_PROVIDERS"} == env.SECRETS
