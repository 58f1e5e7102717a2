"""An organization that requires a second factor: without one there is the account page, no more."""

from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.test import Client
from django.utils import timezone

from controlplane.core.api.stepup import SecondFactorRequired
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Action, Role
from controlplane.tenants.access import allows, require
from controlplane.tenants.adminkeys.services import AdminKeyDraft, adminkey_create
from controlplane.tenants.models import User
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.selectors import organization_ids
from controlplane.tenants.sign_in.accounts import user_create
from controlplane.tenants.sign_in.factors import passkey_add, passkey_used, second_factor_require
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def add_passkey(user: User) -> None:
    passkey_add(user=user, label="key", credential_id=user.id.bytes, material=b"m")


def set_by_api(client: Client, cast: Cast, required: bool) -> int:
    path = f"/api/organizations/{cast.acme.id}/security"
    answer = client.put(path, {"second_factor_required": required}, "application/json")
    return answer.status_code


def test_without_a_factor_a_member_reaches_the_account_page_alone(cast: Cast) -> None:
    alice, bob = signed_in(cast.alice), signed_in(cast.bob)
    assert set_by_api(alice, cast, True) == 400
    add_passkey(cast.alice)
    assert set_by_api(alice, cast, True) == 200
    assert bob.get("/keys")["Location"] == "/account"
    account = bob.get("/account")
    assert account.status_code == 200
    assert "requires a second factor" in account.content.decode()
    assert bob.get("/account/app").status_code == 200
    refused = bob.get(f"/api/organizations/{cast.acme.id}/keys")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "second_factor_required")
    assert organization_ids(user=cast.bob) == []
    with pytest.raises(SecondFactorRequired):
        require(cast.bob, Action.KEY_VIEW, cast.acme.id)
    # Whoever has one goes on, and so does who adds one.
    assert alice.get("/keys").status_code == 200
    add_passkey(cast.bob)
    assert bob.get("/keys").status_code == 200
    assert set_by_api(alice, cast, False) == 200
    actions = rows(
        "SELECT actor_label, before, after FROM audit_entries"
        " WHERE action = 'organization.second_factor' ORDER BY id"
    )
    name = "second_factor_required"
    assert actions == [
        ("alice@example.org", {name: False}, {name: True}),
        ("alice@example.org", {name: True}, {name: False}),
    ]


def test_owners_alone_require_it_and_on_the_page_too(cast: Cast) -> None:
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=Role.ADMIN)
    add_passkey(cast.bob)
    with pytest.raises(PermissionDenied):
        second_factor_require(actor=cast.bob, organization_id=cast.acme.id, required=True)
    with pytest.raises(ValidationError):
        second_factor_require(actor=cast.alice, organization_id=cast.acme.id, required=True)
    add_passkey(cast.alice)
    alice = signed_in(cast.alice)
    assert "Require 2FA for all members" in alice.get("/members").content.decode()
    assert alice.post("/members/second-factor", {"required": "on"})["Location"] == "/members"
    assert "Stop requiring 2FA" in alice.get("/members").content.decode()


def test_what_is_required_ends_tokens_and_keys_and_opens_no_way_around(cast: Cast) -> None:
    """A member without one is still a member: who removes or raises them needs the right to."""
    key = adminkey_create(
        actor=cast.alice, organization_id=cast.acme.id, draft=AdminKeyDraft("x", ["key.view"])
    ).key
    began = timezone.now()
    assert second_factor_require(actor=OPERATOR, organization_id=cast.acme.id, required=True)
    assert not second_factor_require(actor=OPERATOR, organization_id=cast.acme.id, required=True)
    ended = rows("SELECT email FROM users WHERE tokens_from >= %s ORDER BY email", began)
    assert ended == [("alice@example.org",), ("bob@example.org",)]
    assert not allows(key, Action.KEY_VIEW, cast.acme.id)
    dora = user_create(actor=OPERATOR, email="dora@example.org")
    membership_set(actor=OPERATOR, organization=cast.acme, user=dora, role=Role.ADMIN)
    add_passkey(dora)
    # Alice, who owns it, has none: an admin still cannot unmake her.
    with pytest.raises(PermissionDenied):
        membership_set(actor=dora, organization=cast.acme, user=cast.alice, role=Role.VIEWER)
    add_passkey(cast.alice)
    assert allows(key, Action.KEY_VIEW, cast.acme.id)


@pytest.mark.parametrize(
    ("counters", "taken"),
    [
        ((5, 6, 9), (True, True, True)),
        ((5, 5, 4), (True, False, False)),
        # One that is kept in several devices does not count; one that counted goes on to.
        ((0, 0, 0), (True, True, True)),
        ((3, 0, 4), (True, False, True)),
    ],
)
def test_a_copied_passkey_is_seen_by_its_counter(
    cast: Cast, counters: tuple[int, ...], taken: tuple[bool, ...]
) -> None:
    add_passkey(cast.alice)
    credential = cast.alice.id.bytes
    found = tuple(
        passkey_used(user=cast.alice, credential_id=credential, counter=one) for one in counters
    )
    assert found == taken
