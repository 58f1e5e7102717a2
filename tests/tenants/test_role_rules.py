"""Roles by groups: given, changed and taken back where a provider's rules gave them, alone."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.core import mail

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role, organization_scope
from controlplane.tenants.access import role_of
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.models import Membership, OutsideIdentity, User
from controlplane.tenants.people.selectors import member_get
from controlplane.tenants.people.services import (
    invitation_create,
    membership_end,
    membership_set,
    user_deactivate,
)
from controlplane.tenants.sign_in.identities import Identity, NotInvited, identity_user
from controlplane.tenants.sign_in.providers import OidcProvider
from tests.support.money import rows
from tests.support.people import Cast, make_cast
from tests.support.provider import oidc_provider

DORA = "dora@example.org"


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def provider(cast: Cast, issuer: str = "https://a.example", **rules: str) -> OidcProvider:
    """One whose groups have these roles in Acme."""
    place = f"org_{cast.acme.id.hex}"
    roles = [{"group": group, "organization": place, "role": rules[group]} for group in rules]
    return oidc_provider(issuer, roles=roles)


def come(of: OidcProvider, *groups: str, email: str = DORA, subject: str = "dora-1") -> User:
    return identity_user(Identity(of, subject, email, frozenset(groups), 0.0))


def test_the_first_role_of_several_groups_counts(cast: Cast) -> None:
    of = provider(cast, readers="viewer", builders="developer", heads="admin")
    for groups, role in (
        (("readers", "builders"), Role.DEVELOPER),
        (("heads", "readers"), Role.ADMIN),
        (("readers",), Role.VIEWER),
        (("others",), None),
        (("builders",), Role.DEVELOPER),
    ):
        assert role_of(come(of, *groups), cast.acme.id) is role


def test_a_role_that_people_gave_is_left_as_it_is(cast: Cast) -> None:
    of = provider(cast, heads="admin", readers="viewer")
    bob = come(of, "heads", email=cast.bob.email, subject="bob-1")
    assert bob == cast.bob and role_of(bob, cast.acme.id) is Role.DEVELOPER
    come(of, email=cast.bob.email, subject="bob-1")
    assert role_of(bob, cast.acme.id) is Role.DEVELOPER
    # Who changes one that a group gave takes it over.
    dora = come(of, "readers")
    membership_set(actor=cast.alice, organization=cast.acme, user=dora, role=Role.FINANCE)
    for groups in (["heads"], []):
        come(of, *groups)
        assert role_of(dora, cast.acme.id) is Role.FINANCE


def test_who_is_removed_by_hand_is_back_while_in_the_group_and_not_once_closed(cast: Cast) -> None:
    of = provider(cast, readers="viewer")
    dora = come(of, "readers")
    found = member_get(actor=cast.alice, organization_id=cast.acme.id, user_id=dora.id)
    membership_end(actor=cast.alice, membership=found)
    come(of)
    assert role_of(dora, cast.acme.id) is None
    come(of, "readers")
    assert role_of(dora, cast.acme.id) is Role.VIEWER
    user_deactivate(actor=cast.stella, user=dora)
    with pytest.raises(NotInvited):
        come(of, "readers")


def test_owners_are_told_which_keys_go_on_without_their_maker(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "EMAIL_HOST", "mail.internal")
    of = provider(cast, builders="developer", readers="viewer")
    dora = come(of, "builders")
    key = apikey_create(actor=dora, project=cast.project, label="nightly").key
    come(of, "readers")
    assert mail.outbox == []
    come(of)
    (sent,) = mail.outbox
    assert sent.recipients() == [cast.alice.email]
    assert DORA in sent.subject and f"nightly ({key.redacted})" in sent.body
    ((detail,),) = rows("SELECT detail FROM audit_entries WHERE action = 'membership.end'")
    assert detail["keys_left"] == [key.redacted]
    # Nobody is told where nothing is left behind.
    come(of, "builders", email="erin@example.org", subject="erin-1")
    come(of, email="erin@example.org", subject="erin-1")
    assert len(mail.outbox) == 1


def test_the_last_owner_stays_one(cast: Cast) -> None:
    of = provider(cast, chiefs="owner", readers="viewer")
    dora = come(of, "chiefs")
    found = member_get(actor=OPERATOR, organization_id=cast.acme.id, user_id=cast.alice.id)
    membership_end(actor=OPERATOR, membership=found)
    for groups in (["readers"], []):
        come(of, *groups)
        assert role_of(dora, cast.acme.id) is Role.OWNER
    membership_set(actor=dora, organization=cast.acme, user=cast.alice, role=Role.OWNER)
    come(of)
    assert role_of(dora, cast.acme.id) is None


def test_a_provider_takes_back_what_it_gave_alone(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = provider(cast, "https://a.example", readers="viewer")
    other = provider(cast, "https://b.example", heads="admin")
    monkeypatch.setattr(settings, "OIDC_PROVIDERS", (one, other))
    dora = come(one, "readers")
    # The second provider verifies the same address: the same account, with an identity of each.
    assert come(other, "heads", subject="d-2") == dora
    assert role_of(dora, cast.acme.id) is Role.VIEWER
    come(other, subject="d-2")
    assert role_of(dora, cast.acme.id) is Role.VIEWER
    come(one)
    assert role_of(dora, cast.acme.id) is None
    come(other, "heads", subject="d-2")
    assert role_of(dora, cast.acme.id) is Role.ADMIN
    assert OutsideIdentity.objects.filter(user=dora).count() == 2


def test_roles_of_a_provider_that_is_gone_are_the_next_ones(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    dora = come(provider(cast, "https://a.example", heads="admin"), "heads")
    now = provider(cast, "https://b.example", readers="viewer")
    monkeypatch.setattr(settings, "OIDC_PROVIDERS", (now,))
    come(now, "readers", subject="d-2")
    assert role_of(dora, cast.acme.id) is Role.VIEWER
    come(now, subject="d-2")
    assert role_of(dora, cast.acme.id) is None


def test_an_invitation_keeps_whoever_a_group_let_in(cast: Cast) -> None:
    of = provider(cast, readers="viewer", heads="admin")
    for group, kept in (("readers", Role.DEVELOPER), ("heads", None)):
        name = f"{group}@example.org"
        _, token = invitation_create(
            actor=cast.alice, organization=cast.acme, email=name, role=Role.DEVELOPER
        )
        come(of, group, email=name, subject=group)
        user = identity_user(Identity(of, group, name, frozenset([group]), 0.0), token=token)
        # What the invitation gives is no less than the group's, or the group's is left alone.
        assert role_of(user, cast.acme.id) is (kept or Role.ADMIN)
        come(of, email=name, subject=group)
        assert role_of(user, cast.acme.id) is kept


def test_the_same_subject_of_two_providers_is_two_people(cast: Cast) -> None:
    one, other = (provider(cast, f"https://{name}.example", all="viewer") for name in "ab")
    first = come(one, "all", subject="1")
    with pytest.raises(NotInvited):
        come(other, "all", subject="1", email="")
    second = come(other, "all", subject="1", email="eve@example.org")
    assert first != second


def test_rules_that_are_gone_are_taken_back_and_those_of_others_are_not(cast: Cast) -> None:
    dora = come(provider(cast, readers="viewer"), "readers")
    place = f"org_{cast.other.id.hex}"
    moved = oidc_provider(
        "https://a.example", roles=[{"group": "readers", "organization": place, "role": "viewer"}]
    )
    come(moved, "readers")
    assert role_of(dora, cast.acme.id) is None
    assert role_of(dora, cast.other.id) is Role.VIEWER
    assert role_of(cast.bob, cast.acme.id) is Role.DEVELOPER


def test_where_there_is_no_room_and_no_organization_nobody_new_comes_in(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere: dict[str, Any] = {"organization": f"org_{'0' * 32}", "role": "viewer", "group": "all"}
    with pytest.raises(NotInvited):
        come(oidc_provider("https://a.example", roles=[nowhere]), "all")
    monkeypatch.setattr(settings, "MEMBERS_PER_ORGANIZATION_MAX", 2)
    with pytest.raises(NotInvited):
        come(provider(cast, all="viewer"), "all")
    assert not User.objects.filter(email=DORA).exists()
    # Who is known comes in, and the other rules count.
    bob = come(provider(cast, all="viewer"), "all", email=cast.bob.email)
    assert role_of(bob, cast.acme.id) is Role.DEVELOPER


def test_a_change_is_audited_once_and_as_the_rules(cast: Cast) -> None:
    of = provider(cast, readers="viewer")
    for _ in range(3):
        come(of, "readers")
    told = rows("SELECT actor_label, detail FROM audit_entries WHERE action = 'membership.set'")
    mine = [detail for label, detail in told if label == "single sign-on"]
    assert mine == [{"user": DORA, "role": "viewer", "before": None, "issuer": "https://a.example"}]
    with organization_scope([cast.acme.id]):
        kept = Membership.objects.exclude(issuer="").values_list("user__email", flat=True)
        assert list(kept) == [DORA]
