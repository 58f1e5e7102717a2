"""Admin keys: what they open and what not, how they end, and that they are shown once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.test import Client
from django.utils import timezone

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import MATRIX, Action, Role
from controlplane.kernel.keys.format import ADMIN_PREFIX, new_credential
from controlplane.tenants.access import allows, require
from controlplane.tenants.adminkeys import services as adminkeys
from controlplane.tenants.adminkeys.models import KEY_ACTIONS
from controlplane.tenants.adminkeys.services import AdminKeyDraft, CreatedAdminKey
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.models import AdminKey
from controlplane.tenants.people.services import invitation_create, membership_set
from controlplane.tenants.selectors import organization_ids, project_list
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def make(cast: Cast, *actions: str, **more: Any) -> CreatedAdminKey:
    return adminkeys.adminkey_create(
        actor=cast.alice,
        organization_id=cast.acme.id,
        draft=AdminKeyDraft("night", actions or ("key.view",), **more),
    )


def address(cast: Cast, key: object = "") -> str:
    return f"/api/organizations/{cast.acme.id}/admin-keys{'/' if key else ''}{key}"


def with_key(secret: str) -> Client:
    return Client(headers={"Authorization": f"Bearer {secret}"})


def test_a_key_opens_what_it_is_for_in_its_organization_alone(cast: Cast) -> None:
    key = make(cast, "key.view").key
    require(key, Action.KEY_VIEW, cast.acme.id)
    require(key, Action.ORGANIZATION_VIEW, cast.acme.id)
    for action in (Action.KEY_CREATE, Action.FLEET_VIEW, Action.CREDIT_GRANT):
        with pytest.raises(PermissionDenied):
            require(key, action, cast.acme.id)
    with pytest.raises(ObjectDoesNotExist):
        require(key, Action.KEY_VIEW, cast.other.id)
    assert organization_ids(user=key, action=Action.KEY_VIEW) == [cast.acme.id]
    assert organization_ids(user=key, action=Action.LEDGER_VIEW) == []
    assert [one.id for one in project_list(user=key)] == [cast.project.id]


def test_a_key_can_no_more_than_its_maker_can_now(cast: Cast) -> None:
    carla = cast.bob
    membership_set(actor=cast.alice, organization=cast.acme, user=carla, role=Role.ADMIN)
    key = adminkeys.adminkey_create(
        actor=carla, organization_id=cast.acme.id, draft=AdminKeyDraft("x", ("ledger.view",))
    ).key
    assert allows(key, Action.LEDGER_VIEW, cast.acme.id)
    membership_set(actor=cast.alice, organization=cast.acme, user=carla, role=Role.DEVELOPER)
    assert not allows(key, Action.LEDGER_VIEW, cast.acme.id)
    assert allows(key, Action.ORGANIZATION_VIEW, cast.acme.id)


def test_a_key_gives_no_role_that_may_do_more_than_the_key(cast: Cast) -> None:
    """Alice owns Acme; what her key may not do, nobody may whom it invites, raises or removes."""
    inviting = make(cast, "member.manage", *(one.value for one in MATRIX[Role.DEVELOPER])).key
    all_of_it = make(cast, *KEY_ACTIONS).key

    def invite(key: AdminKey, role: Role) -> None:
        invitation_create(actor=key, organization=cast.acme, email="dora@example.org", role=role)

    for key, roles in (
        (make(cast, "member.manage").key, set[Role]()),
        (inviting, {Role.DEVELOPER, Role.VIEWER}),
        (all_of_it, {Role.DEVELOPER, Role.VIEWER, Role.FINANCE}),
    ):
        for role in Role:
            if role in roles:
                invite(key, role)
            else:
                with pytest.raises(PermissionDenied):
                    invite(key, role)
    with pytest.raises(PermissionDenied):
        membership_set(actor=inviting, organization=cast.acme, user=cast.bob, role=Role.FINANCE)
    with pytest.raises(PermissionDenied):
        membership_set(actor=all_of_it, organization=cast.acme, user=cast.alice, role=Role.VIEWER)


@pytest.mark.parametrize("name", ["fleet.view", "credit.grant", "admin_key.manage", "no.such"])
def test_some_actions_are_no_keys(cast: Cast, name: str) -> None:
    with pytest.raises(ValidationError) as raised:
        make(cast, name)
    assert list(raised.value.message_dict) == ["actions"]


@pytest.mark.parametrize(
    ("field", "draft"),
    [
        ("label", AdminKeyDraft("", ("key.view",))),
        ("label", AdminKeyDraft("a\nb", ("key.view",))),
        ("lifetime_days", AdminKeyDraft("a", ("key.view",), 0)),
        ("lifetime_days", AdminKeyDraft("a", ("key.view",), 366)),
    ],
)
def test_odd_drafts_are_told(cast: Cast, field: str, draft: AdminKeyDraft) -> None:
    with pytest.raises(ValidationError) as raised:
        adminkeys.adminkey_create(actor=OPERATOR, organization_id=cast.acme.id, draft=draft)
    assert list(raised.value.message_dict) == [field]


def test_living_keys_are_bounded(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adminkeys, "KEYS_MAX", 1)
    first = make(cast).key
    with pytest.raises(ValidationError, match="revoke one"):
        make(cast)
    adminkeys.adminkey_revoke(actor=cast.alice, key=first)
    make(cast)


def test_only_admins_make_and_see_keys_and_strangers_see_nothing(cast: Cast) -> None:
    key = make(cast).key
    assert signed_in(cast.bob).get(address(cast)).status_code == 403
    assert signed_in(cast.charlie).get(address(cast)).status_code == 404
    assert signed_in(cast.charlie).get(address(cast, key.id)).status_code == 404
    theirs = f"/api/organizations/{cast.other.id}/admin-keys/{key.id}"
    assert signed_in(cast.charlie).get(theirs).status_code == 404
    assert Client().get(address(cast)).status_code == 401
    with pytest.raises(PermissionDenied):
        adminkeys.adminkey_create(
            actor=cast.bob, organization_id=cast.acme.id, draft=AdminKeyDraft("x", ("key.view",))
        )


def test_made_listed_and_revoked_over_the_api(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    body = {"label": "night", "actions": ["ledger.view"]}
    made = alice.post(address(cast), body, "application/json", headers={"Idempotency-Key": "a"})
    assert made.status_code == 201 and made["Cache-Control"] == "no-store"
    told = made.json()
    assert told["actions"] == ["ledger.view", "organization.view"]
    again = alice.post(address(cast), body, "application/json", headers={"Idempotency-Key": "a"})
    assert again.json() == told
    second = alice.post(address(cast), {**body, "label": "day"}, "application/json").json()
    first_page = alice.get(address(cast), {"limit": 1}).json()
    assert [one["id"] for one in first_page["data"]] == [second["id"]]
    assert first_page["has_more"] is True and "secret" not in first_page["data"][0]
    rest = alice.get(address(cast), {"after": first_page["last_id"]}).json()
    assert [one["id"] for one in rest["data"]] == [told["id"]] and rest["has_more"] is False
    assert with_key(told["secret"]).get(address(cast)).status_code == 403
    ended = alice.delete(address(cast, told["id"]))
    assert ended.json() == {"id": told["id"], "changed": True}
    assert alice.delete(address(cast, told["id"])).json()["changed"] is False
    assert with_key(told["secret"]).get(address(cast)).status_code == 401
    assert alice.get(address(cast, told["id"])).json()["state"] == "revoked"


def test_a_session_that_is_not_fresh_must_confirm(cast: Cast) -> None:
    client = signed_in(cast.alice)
    session = client.session
    session.pop("confirmed_at_s", None)
    session.save()
    body = {"label": "night", "actions": ["key.view"]}
    refused = client.post(address(cast), body, "application/json")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "step_up_required")


def test_unknown_broken_expired_and_foreign_keys_are_told_apart_from_nothing(cast: Cast) -> None:
    made = make(cast)
    secret = made.secret
    flipped = secret[:-1] + ("0" if secret[-1] != "0" else "1")
    expired = make(cast)
    rows("UPDATE admin_keys SET expires_at = now() WHERE id = %s", expired.key.id)
    inference = apikey_create(actor=cast.alice, project=cast.project, label="i").secret
    for token in (flipped, new_credential(ADMIN_PREFIX).text, expired.secret, inference, "x"):
        assert with_key(token).get(address(cast)).status_code == 401
    told = with_key(inference).get(address(cast)).json()["error"]["message"]
    assert "inference key" in told and "admin key" in told
    # The right id with another secret.
    other = new_credential(ADMIN_PREFIX).text
    rows("UPDATE admin_keys SET key_id = %s WHERE id = %s", other.split("_")[2], made.key.id)
    assert with_key(other).get(address(cast)).status_code == 401


def test_its_last_use_is_noted_and_its_deeds_are_told(cast: Cast) -> None:
    made = make(cast, "member.view")
    assert adminkeys.adminkey_open(text=made.secret) is not None
    ((used,),) = rows("SELECT last_used_at FROM admin_keys")
    assert timezone.now() - used < timedelta(minutes=1)
    adminkeys.adminkey_open(text=made.secret)
    assert rows("SELECT last_used_at FROM admin_keys") == [(used,)]
    ((action, detail),) = rows(
        "SELECT action, detail::text FROM audit_entries WHERE subject_type = 'AdminKey'"
    )
    assert action == "adminkey.create" and made.secret not in detail


def test_only_its_hmac_is_kept(cast: Cast) -> None:
    made = make(cast)
    ((digest, redacted),) = rows("SELECT digest, redacted FROM admin_keys")
    assert len(digest) == 32 and made.secret not in redacted
    assert settings.KEY_PEPPER not in bytes(digest)


def test_rows_are_seen_in_their_organization_or_by_presenting_their_id(cast: Cast) -> None:
    made = make(cast)
    assert not AdminKey.objects.exists()
    adminkeys.adminkey_open(text=made.secret)
    assert not AdminKey.objects.exists()
    with pytest.raises(ObjectDoesNotExist):
        adminkeys.adminkey_get(
            actor=cast.charlie, organization_id=cast.other.id, key_id=made.key.id
        )
