"""No key is wider than its creator may make one, nor than the key it is made within or from."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db.models import F
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.errors.body import Conflict
from controlplane.core.permissions import Role, organization_scope
from controlplane.kernel.keys.scopes import ENDPOINTS, READ_ENDPOINTS, caller_within
from controlplane.kernel.rules import PRIORITIES, PRIORITY_HIGH
from controlplane.tenants.audit.selectors import audit_search
from controlplane.tenants.keys import (
    OVERLAP_S_MAX,
    KeyTerms,
    apikey_create,
    apikey_revoke,
    apikey_rotate,
    clean_terms,
    endpoints_of,
    require_within,
    terms_of,
)
from controlplane.tenants.models import ApiKey
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.selectors import apikey_get
from tests.support.people import make_cast

MODELS = ("m-1", "m-2", "m-3")
CALLERS = ("10.0.0.1", "10.1.0.1", "192.0.2.1", "2001:db8::1", "203.0.113.1")
NETWORKS = ("10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24", "2001:db8::/32", "::/0", "0.0.0.0/0")

terms = st.builds(
    KeyTerms,
    models=st.none() | st.sets(st.sampled_from(MODELS), min_size=1),
    endpoints=st.none() | st.sets(st.sampled_from(ENDPOINTS), min_size=1),
    read_only=st.booleans(),
    networks=st.lists(st.sampled_from(NETWORKS), max_size=3),
    tags=st.sets(st.sampled_from(["a", "b"])),
    priority=st.sampled_from(PRIORITIES),
).map(clean_terms)


def allowed(given: KeyTerms) -> set[object]:
    """Everything that a key with these terms can do, spelled out."""
    models = MODELS if given.models is None else given.models
    networks = tuple(given.networks)
    callers = [who for who in CALLERS if not networks or caller_within(networks, who)]
    return {
        (model, endpoint, caller, rank, tag)
        for model in models
        for endpoint in endpoints_of(given)
        for caller in callers
        for rank in range(given.priority + 1)
        for tag in (None, *given.tags)
    }


@given(inner=terms, outer=terms)
def test_what_is_within_can_do_nothing_more(inner: KeyTerms, outer: KeyTerms) -> None:
    try:
        require_within(inner, outer)
    except ValidationError:
        return
    assert allowed(inner) <= allowed(outer)


@given(same=terms)
def test_terms_are_within_themselves(same: KeyTerms) -> None:
    require_within(same, same)


@pytest.mark.usefixtures("database")
def test_scopes_are_kept_as_they_were_asked_for() -> None:
    cast = make_cast()
    wanted = KeyTerms(
        endpoints=["key", "chat", "chat"], networks=["10.0.0.0/8", "192.0.2.7", "10.0.0.0/8"]
    )
    key = apikey_create(actor=cast.bob, project=cast.project, label="k", terms=wanted).key
    stored = apikey_get(user=cast.alice, apikey_id=key.id)
    assert stored.allowed_endpoints == ["chat", "key"]
    assert stored.networks == ["10.0.0.0/8", "192.0.2.7/32"]
    newest = audit_search(actor=cast.alice, organization_id=cast.acme.id).rows[0]
    assert newest.detail["networks"] == stored.networks
    assert newest.detail["endpoints"] == stored.allowed_endpoints


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (KeyTerms(endpoints=[]), "endpoints"),
        (KeyTerms(endpoints=["assistants"]), "endpoints"),
        (KeyTerms(networks=["10.0.0.1/8"]), "networks"),
        (KeyTerms(networks=["anywhere"]), "networks"),
        (KeyTerms(networks=[f"10.0.{n}.0/24" for n in range(33)]), "networks"),
    ],
)
def test_bad_scopes_name_their_field(wrong: KeyTerms, field: str) -> None:
    cast = make_cast()
    with pytest.raises(ValidationError) as caught:
        apikey_create(actor=cast.alice, project=cast.project, label="k", terms=wrong)
    assert list(caught.value.message_dict) == [field]


@pytest.mark.usefixtures("database")
def test_a_key_made_within_another_is_no_wider() -> None:
    cast = make_cast()
    narrow = KeyTerms(models=["m-1"], endpoints=["chat"], networks=["10.0.0.0/8"])
    outer = apikey_create(
        actor=cast.alice, project=cast.project, label="outer", terms=narrow, lifetime_days=10
    ).key
    inside = KeyTerms(models=["m-1"], endpoints=["chat"], networks=["10.1.0.0/16"], within=outer)
    made = apikey_create(
        actor=cast.bob, project=cast.project, label="i", terms=inside, lifetime_days=9
    ).key
    assert made.networks == ["10.1.0.0/16"]
    for wider, days, field in (
        (KeyTerms(within=outer), 9, {"models", "endpoints", "networks"}),
        (inside, 90, {"lifetime_days"}),
        (inside, None, {"lifetime_days"}),
    ):
        with pytest.raises(ValidationError) as caught:
            apikey_create(
                actor=cast.bob, project=cast.project, label="w", terms=wider, lifetime_days=days
            )
        assert set(caught.value.message_dict) == field
    apikey_revoke(actor=cast.alice, key=outer)
    with pytest.raises(ValidationError) as caught:
        apikey_create(
            actor=cast.bob, project=cast.project, label="i", terms=inside, lifetime_days=9
        )
    assert set(caught.value.message_dict) == {"within"}


@pytest.mark.usefixtures("database")
def test_no_rotation_outlives_the_key_it_was_made_within() -> None:
    cast = make_cast()
    outer = apikey_create(
        actor=cast.alice, project=cast.project, label="outer", lifetime_days=10
    ).key
    inner = apikey_create(
        actor=cast.bob,
        project=cast.project,
        label="inner",
        terms=KeyTerms(within=outer),
        lifetime_days=9,
    ).key
    # Five days later it would live for nine more.
    days = timedelta(days=5)
    with organization_scope([cast.acme.id]):
        ApiKey.objects.update(
            created_at=F("created_at") - days,
            expires_at=F("expires_at") - days,
            ends_by=F("ends_by") - days,
        )
        bound = ApiKey.objects.get(id=outer.id).expires_at
    for _ in range(2):
        inner = apikey_rotate(actor=cast.bob, key=inner).key
        assert inner.expires_at == bound
    # Nor does one that is made within what was rotated.
    made = apikey_create(
        actor=cast.bob,
        project=cast.project,
        label="innermost",
        terms=KeyTerms(within=inner),
        lifetime_days=1,
    ).key
    assert made.ends_by == bound


@pytest.mark.usefixtures("database")
def test_rotation_keeps_the_terms_and_ends_the_old_key_after_the_overlap() -> None:
    cast = make_cast()
    asked = KeyTerms(models=["m-1"], endpoints=list(READ_ENDPOINTS), networks=["10.0.0.0/8"])
    old = apikey_create(actor=cast.alice, project=cast.project, label="k", terms=asked).key
    began = timezone.now()
    made = apikey_rotate(actor=cast.bob, key=old, overlap_s=90)
    new = apikey_get(user=cast.alice, apikey_id=made.key.id)
    before = apikey_get(user=cast.alice, apikey_id=old.id)
    assert terms_of(new) == terms_of(before)
    assert (new.replaces_id, new.limits_id, before.limits_id) == (old.id, old.id, old.id)
    assert new.created_by == cast.bob and made.secret not in repr(made)
    assert before.expires_at is not None and new.expires_at is not None
    assert timedelta(0) <= before.expires_at - began - timedelta(seconds=90) < timedelta(minutes=1)
    assert timedelta(days=89) < new.expires_at - began < timedelta(days=91)
    assert {before.state(began), new.state(timezone.now())} == {"active"}
    newest = audit_search(actor=cast.alice, organization_id=cast.acme.id).rows[0]
    assert (newest.action, newest.subject_id) == ("apikey.rotate", new.id)
    assert newest.detail["replaces"] == old.redacted
    again = apikey_rotate(actor=cast.bob, key=new).key
    assert again.limits_id == old.id
    with pytest.raises(Conflict):
        apikey_rotate(actor=cast.bob, key=before)


@pytest.mark.usefixtures("database")
def test_rotation_without_overlap_ends_the_old_key_at_once_and_never_lengthens_it() -> None:
    cast = make_cast()
    old = apikey_create(actor=cast.alice, project=cast.project, label="k", lifetime_days=None).key
    new = apikey_rotate(actor=cast.alice, key=old, overlap_s=0).key
    assert apikey_get(user=cast.alice, apikey_id=old.id).state(timezone.now()) == "expired"
    assert new.expires_at is None
    ending = timezone.now() + timedelta(hours=1)
    with organization_scope([cast.acme.id]):
        ApiKey.objects.filter(id=new.id).update(expires_at=ending)
    apikey_rotate(actor=cast.alice, key=new, overlap_s=OVERLAP_S_MAX)
    assert apikey_get(user=cast.alice, apikey_id=new.id).expires_at == ending


@pytest.mark.usefixtures("database")
def test_only_who_could_have_made_a_key_rotates_it() -> None:
    cast = make_cast()
    high = apikey_create(
        actor=cast.alice, project=cast.project, label="k", terms=KeyTerms(priority=PRIORITY_HIGH)
    ).key
    with pytest.raises(PermissionDenied):
        apikey_rotate(actor=cast.bob, key=high)
    with pytest.raises(ObjectDoesNotExist):
        apikey_rotate(actor=cast.charlie, key=high)
    with pytest.raises(ValidationError, match="0 to 604800"):
        apikey_rotate(actor=cast.alice, key=high, overlap_s=OVERLAP_S_MAX + 1)
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=Role.VIEWER)
    with pytest.raises(PermissionDenied):
        apikey_rotate(actor=cast.bob, key=high)
    apikey_revoke(actor=cast.alice, key=high)
    with pytest.raises(Conflict):
        apikey_rotate(actor=cast.alice, key=high)
