"""What an earlier secret made still counts, and counts no more once it is settled."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyotp
import pytest
from django.conf import settings

from controlplane.composed.secrets import rotation
from controlplane.composed.secrets.rotation import SecretError, secret_rotate, secret_settle
from controlplane.connections.keys import key_add, key_opened, keys_active
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import organization_scope
from controlplane.core.seal import BrokenSeal
from controlplane.kernel.clock import wall_s
from controlplane.settings.secret_files import FROM_VARIABLES
from controlplane.slos.channels.delivery import address_of, signature, signing_secret
from controlplane.slos.channels.delivery import signing_secrets as secrets_of
from controlplane.slos.models import Channel
from controlplane.slos.services import channel_add
from controlplane.tenants.adminkeys.services import AdminKeyDraft, adminkey_create, adminkey_open
from controlplane.tenants.sign_in.factors import app_add, app_secret, code_use
from tests.support.hosted import SECRET, make_connection
from tests.support.people import Cast, make_cast

HOOK = "https://hooks.example.org/a-long-path-that-is-secret"
Turn = Callable[[str], None]


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


@pytest.fixture
def turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Turn]:
    """Rotates a secret, and reads the settings as a process does that starts then."""
    names = {
        "key-pepper": ("KEY_PEPPER", "KEY_PEPPERS_BEFORE"),
        "factor-key": ("FACTOR_KEY", "FACTOR_KEYS_BEFORE"),
        "webhook-key": ("WEBHOOK_KEY", "WEBHOOK_KEYS_BEFORE"),
        "connection-key": ("CONNECTION_KEY", "CONNECTION_KEYS_BEFORE"),
    }
    folder = Path(settings.SECRETS_DIR)
    kept = {name: (folder / name).read_text() for name in names}

    def turned(name: str) -> None:
        if not (folder / f"{name}.before").exists():
            secret_rotate(name)
        present, before = names[name]
        read = (folder / f"{name}.before").read_text() if (folder / name).exists() else ""
        monkeypatch.setattr(settings, present, (folder / name).read_text().strip().encode())
        monkeypatch.setattr(settings, before, tuple(each.encode() for each in read.split()))

    yield turned
    for name, value in kept.items():
        (folder / name).write_text(value)
        (folder / f"{name}.before").unlink(missing_ok=True)


def forget(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(settings, name, ())


def test_apps_of_an_earlier_factor_key_work_and_are_sealed_again(
    cast: Cast, turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = app_secret()
    totp = pyotp.TOTP(secret)
    app_add(user=cast.bob, secret=secret, code=totp.at(wall_s() - 30))
    turn("factor-key")
    assert code_use(user=cast.bob, code=totp.now())
    assert "1 sealed again" in secret_settle("factor-key")
    forget(monkeypatch, "FACTOR_KEYS_BEFORE")
    assert code_use(user=cast.bob, code=totp.at(wall_s() + 30))


def test_provider_keys_of_an_earlier_connection_key_are_opened(
    database: str, turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = make_connection()
    key_add(actor=OPERATOR, connection=connection, secret=SECRET)
    turn("connection-key")
    assert key_opened(keys_active(connection).get()) == SECRET
    assert "1 sealed again" in secret_settle("connection-key")
    forget(monkeypatch, "CONNECTION_KEYS_BEFORE")
    assert key_opened(keys_active(connection).get()) == SECRET


def test_a_webhook_is_signed_for_who_has_the_earlier_secret(
    cast: Cast, turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = channel_add(actor=OPERATOR, organization=cast.acme.id, kind="webhook", address=HOOK)
    before = signing_secret(made.id)
    (alone,) = signature([before], b"{}", 1).split(",")[1:]
    turn("webhook-key")
    assert signing_secret(made.id) != before
    assert f"Acme  {made.shown}  {signing_secret(made.id)}" in rotation.webhooks_told()
    both = signature(secrets_of(made.id), b"{}", 1).split(",")[1:]
    assert len(both) == 2 and both[1] == alone
    assert "1 sealed again" in secret_settle("webhook-key")
    forget(monkeypatch, "WEBHOOK_KEYS_BEFORE")
    with organization_scope([cast.acme.id]):
        kept = Channel.objects.get(id=made.id)
    assert address_of(kept.id, cast.acme.id, bytes(kept.sealed)) == HOOK
    # The digest is new, too: the same address is still the same.
    with pytest.raises(Exception, match="already exists"):
        channel_add(actor=OPERATOR, organization=cast.acme.id, kind="webhook", address=HOOK)


def test_keys_of_an_earlier_pepper_count_until_they_are_given_up(
    cast: Cast, turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = AdminKeyDraft(label="ci", actions=["key.view"])
    made = adminkey_create(actor=cast.alice, organization_id=cast.acme.id, draft=draft)
    turn("key-pepper")
    assert adminkey_open(text=made.secret) is not None
    with pytest.raises(SecretError, match="1 keys of clients"):
        secret_settle("key-pepper")
    secret_settle("key-pepper", despite_keys=True)
    forget(monkeypatch, "KEY_PEPPERS_BEFORE")
    assert adminkey_open(text=made.secret) is None


def test_what_is_set_elsewhere_is_replaced_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FROM_VARIABLES, "django", "SLUICE_SECRET_KEY")
    with pytest.raises(SecretError, match="SLUICE_SECRET_KEY_BEFORE"):
        secret_rotate("django")
    monkeypatch.setattr(rotation, "SECRETS_GIVEN", True)
    with pytest.raises(SecretError, match=r"into factor-key\.before"):
        secret_rotate("factor-key")


def test_what_a_secret_given_from_outside_sealed_is_sealed_again(
    database: str, turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = make_connection()
    key_add(actor=OPERATOR, connection=connection, secret=SECRET)
    monkeypatch.setattr(rotation, "SECRETS_GIVEN", True)
    assert "no earlier value" in secret_settle("connection-key")
    monkeypatch.setattr(rotation, "SECRETS_GIVEN", False)
    turn("connection-key")
    monkeypatch.setattr(rotation, "SECRETS_GIVEN", True)
    told = secret_settle("connection-key")
    assert told.startswith("1 sealed again") and told.endswith("connection-key.before.")
    # The file is another's, who takes the value out.
    assert (Path(settings.SECRETS_DIR) / "connection-key.before").read_text().strip()
    forget(monkeypatch, "CONNECTION_KEYS_BEFORE")
    assert key_opened(keys_active(connection).get()) == SECRET


def test_no_earlier_value_is_lost_however_often_one_rotates(turn: Turn) -> None:
    folder = Path(settings.SECRETS_DIR)
    first = (folder / "webhook-key").read_text().strip()
    with pytest.raises(SecretError, match="sluice secrets settle webhook-key"):
        for _ in range(rotation.BEFORE_MAX + 1):
            secret_rotate("webhook-key")
    assert first in (folder / "webhook-key.before").read_text().split()


def test_a_seal_of_no_known_key_stays_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokenSeal):
        address_of(uuid.uuid4(), uuid.uuid4(), b"x" * 40)
