"""API keys: shown once, kept as an HMAC, revoked once, invisible to strangers."""

from datetime import timedelta

import pytest
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db import IntegrityError
from django.utils import timezone

from controlplane.core.permissions import Role, organization_scope
from controlplane.kernel.keys.format import digest, parse_credential
from controlplane.kernel.rules import PRIORITY_HIGH, PRIORITY_LOW
from controlplane.tenants.audit.selectors import audit_search
from controlplane.tenants.keys import KeyTerms, apikey_create, apikey_revoke
from controlplane.tenants.models import ApiKey
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.selectors import apikey_get, apikey_list
from tests.support.people import make_cast

pytestmark = pytest.mark.usefixtures("database")


def test_a_new_key_is_well_formed_and_kept_only_as_its_hmac() -> None:
    cast = make_cast()
    created = apikey_create(
        actor=cast.bob, project=cast.project, label=" deploy ", terms=KeyTerms(models=["b", "a"])
    )
    credential = parse_credential(created.secret)
    assert credential is not None
    key = apikey_get(user=cast.alice, apikey_id=created.key.id)
    assert key.key_id == credential.key_id
    assert bytes(key.digest) == digest(created.secret, settings.KEY_PEPPER)
    assert (key.label, key.allowed_models, key.created_by) == ("deploy", ["a", "b"], cast.bob)
    assert key.expires_at is not None
    lifetime = key.expires_at - timezone.now()
    assert timedelta(days=89) < lifetime < timedelta(days=91)
    assert created.secret not in repr(created)


def test_revoking_happens_once_and_is_audited() -> None:
    cast = make_cast()
    key = apikey_create(actor=cast.alice, project=cast.project, label="k").key
    assert apikey_revoke(actor=cast.bob, key=key, reason="leaked")
    assert not apikey_revoke(actor=cast.alice, key=key, reason="again")
    stored = apikey_get(user=cast.alice, apikey_id=key.id)
    assert stored.state(timezone.now()) == "revoked"
    assert stored.revoked_reason == "leaked"
    newest = audit_search(actor=cast.alice, organization_id=cast.acme.id).rows[0]
    assert (newest.action, newest.actor_label) == ("apikey.revoke", "bob@example.org")


def test_charlie_sees_and_touches_nothing() -> None:
    cast = make_cast()
    key = apikey_create(actor=cast.alice, project=cast.project, label="k").key
    assert apikey_list(user=cast.charlie) == []
    assert [one.id for one in apikey_list(user=cast.bob)] == [key.id]
    with pytest.raises(ObjectDoesNotExist):
        apikey_get(user=cast.charlie, apikey_id=key.id)
    with pytest.raises(ObjectDoesNotExist):
        apikey_revoke(actor=cast.charlie, key=key)
    with pytest.raises(ObjectDoesNotExist):
        apikey_create(actor=cast.charlie, project=cast.project, label="k")


@pytest.mark.parametrize("role", [Role.FINANCE, Role.VIEWER])
def test_roles_without_the_right_are_refused(role: Role) -> None:
    cast = make_cast()
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=role)
    with pytest.raises(PermissionDenied):
        apikey_create(actor=cast.bob, project=cast.project, label="k")
    assert apikey_list(user=cast.bob) == []


def test_an_inactive_user_sees_nothing() -> None:
    cast = make_cast()
    key = apikey_create(actor=cast.alice, project=cast.project, label="k").key
    assert [one.id for one in apikey_list(user=cast.bob)] == [key.id]
    cast.bob.is_active = False
    assert apikey_list(user=cast.bob) == []


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"label": ""}, "label"),
        ({"label": "x" * 101}, "label"),
        ({"label": "a\nb"}, "label"),
        ({"label": "k", "terms": KeyTerms(models=[])}, "models"),
        ({"label": "k", "terms": KeyTerms(models=[f"m{n}" for n in range(101)])}, "models"),
        ({"label": "k", "lifetime_days": 0}, "lifetime_days"),
        ({"label": "k", "lifetime_days": 10**6}, "lifetime_days"),
        ({"label": "k", "terms": KeyTerms(tags=[f"t{n}" for n in range(17)])}, "tags"),
        ({"label": "k", "terms": KeyTerms(tags=["Loud"])}, "tags"),
        ({"label": "k", "terms": KeyTerms(tags=["x" * 41])}, "tags"),
        ({"label": "k", "terms": KeyTerms(priority=3)}, "priority"),
        ({"label": "k", "terms": KeyTerms(priority=-1)}, "priority"),
    ],
)
def test_bad_input_names_its_field(wrong: dict[str, object], field: str) -> None:
    cast = make_cast()
    with pytest.raises(ValidationError) as caught:
        apikey_create(actor=cast.alice, project=cast.project, **wrong)  # type: ignore[arg-type]
    assert list(caught.value.message_dict) == [field]


def test_tags_and_priority_are_kept_and_audited() -> None:
    cast = make_cast()
    key = apikey_create(
        actor=cast.bob,
        project=cast.project,
        label="k",
        terms=KeyTerms(tags=["night", "batch", "night"], priority=PRIORITY_LOW),
    ).key
    stored = apikey_get(user=cast.alice, apikey_id=key.id)
    assert (stored.tags, stored.priority) == (["batch", "night"], PRIORITY_LOW)
    newest = audit_search(actor=cast.alice, organization_id=cast.acme.id).rows[0]
    assert (newest.detail["tags"], newest.detail["priority"]) == (["batch", "night"], PRIORITY_LOW)


def test_going_before_others_takes_the_right_to_set_limits() -> None:
    cast = make_cast()
    with pytest.raises(PermissionDenied):
        apikey_create(
            actor=cast.bob, project=cast.project, label="k", terms=KeyTerms(priority=PRIORITY_HIGH)
        )
    key = apikey_create(
        actor=cast.alice, project=cast.project, label="k", terms=KeyTerms(priority=PRIORITY_HIGH)
    ).key
    assert apikey_get(user=cast.bob, apikey_id=key.id).priority == PRIORITY_HIGH


def test_a_key_cannot_belong_to_another_organizations_project() -> None:
    cast = make_cast()
    key = apikey_create(actor=cast.alice, project=cast.project, label="k").key
    with pytest.raises(IntegrityError), organization_scope([cast.acme.id, cast.other.id]):
        ApiKey.objects.filter(id=key.id).update(project=cast.other_project)
