"""Node credentials: for staff, kept as an HMAC, revoked once."""

import pytest
from django.conf import settings
from django.core.exceptions import PermissionDenied, ValidationError

from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.fleet.models import Node, NodeCredential
from controlplane.fleet.services import node_credential_create, node_credential_revoke
from controlplane.kernel.keys.format import NODE_PREFIX, digest, parse_credential
from tests.support.people import make_cast

pytestmark = pytest.mark.usefixtures("database")


def test_a_credential_registers_its_node_once() -> None:
    cast = make_cast()
    first = node_credential_create(actor=cast.stella, name="n1", pool="default", models=["m"])
    second = node_credential_create(actor=cast.stella, name="n1", pool="default")
    assert first.credential.node_id == second.credential.node_id
    parsed = parse_credential(first.secret, NODE_PREFIX)
    assert parsed is not None and parse_credential(first.secret) is None
    stored = NodeCredential.objects.get(key_id=parsed.key_id)
    assert bytes(stored.digest) == digest(first.secret, settings.KEY_PEPPER)
    assert stored.allowed_models == ["m"]
    assert list(Node.objects.values_list("name", "state")) == [("n1", "new")]
    assert second.credential.id != first.credential.id


def test_a_new_credential_moves_its_node_to_the_pool_that_it_names() -> None:
    cast = make_cast()
    pool_set(actor=cast.stella, draft=PoolDraft(name="gold"))
    node_credential_create(actor=cast.stella, name="n1", pool="default")
    node_credential_create(actor=cast.stella, name="n1", pool="gold")
    assert list(Node.objects.values_list("name", "pool")) == [("n1", "gold")]


def test_revoking_happens_once() -> None:
    cast = make_cast()
    made = node_credential_create(actor=cast.stella, name="n1", pool="default").credential
    assert node_credential_revoke(actor=cast.stella, credential=made, reason="sold")
    assert not node_credential_revoke(actor=cast.stella, credential=made)


def test_only_staff_and_only_sound_names() -> None:
    cast = make_cast()
    with pytest.raises(PermissionDenied):
        node_credential_create(actor=cast.alice, name="n1", pool="default")
    id_like = "0123456789abcdef" * 2
    for name, pool in (("", "default"), ("n", "Not A Pool"), (id_like, "default")):
        with pytest.raises(ValidationError):
            node_credential_create(actor=cast.stella, name=name, pool=pool)
