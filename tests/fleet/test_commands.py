"""`manage.py node_credential`: prints the credential alone, and names a wrong argument."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.core.audit import OPERATOR
from controlplane.fleet.models import Node
from controlplane.fleet.selectors import node_credential_find
from controlplane.kernel.keyformat import NODE_PREFIX, parse_credential

pytestmark = pytest.mark.usefixtures("database")


def node_credential(*arguments: str) -> str:
    out, error = StringIO(), StringIO()
    call_command("node_credential", *arguments, stdout=out, stderr=error)
    assert "SLUICE_NODE_CREDENTIAL" in error.getvalue()
    return out.getvalue().strip()


@pytest.mark.parametrize(
    ("more", "pool", "models"),
    [
        ((), "default", None),
        (("--pool", "gold", "--model", "b", "--model", "a"), "gold", ["a", "b"]),
    ],
)
def test_it_prints_a_credential_of_that_node(
    more: tuple[str, ...], pool: str, models: list[str] | None
) -> None:
    pool_set(actor=OPERATOR, draft=PoolDraft(name="gold"))
    parsed = parse_credential(node_credential("n1", *more), NODE_PREFIX)
    assert parsed is not None
    found = node_credential_find(key_id=parsed.key_id)
    assert found is not None and found.allowed_models == models
    assert list(Node.objects.values_list("name", "pool")) == [("n1", pool)]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((" ",), "NAME"),
        (("n1", "--pool", "nowhere"), "--pool"),
        (("n1", "--model", ""), "--model"),
    ],
)
def test_a_wrong_argument_is_named(arguments: tuple[str, ...], named: str) -> None:
    with pytest.raises(CommandError, match=named):
        node_credential(*arguments)
    assert not Node.objects.exists()
