"""`manage.py node_credential` and `fleet`: secrets printed alone, wrong arguments named."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.models import ModelDigest, Node, NodeCredential
from controlplane.fleet.services import token_redeem
from controlplane.kernel.keys.format import ENROL_PREFIX, NODE_PREFIX, parse_credential

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
    assert NodeCredential.objects.get(key_id=parsed.key_id).allowed_models == models
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


def fleet(*arguments: str) -> str:
    out, error = StringIO(), StringIO()
    call_command("fleet", *arguments, stdout=out, stderr=error)
    return out.getvalue().strip()


def test_a_node_is_drained_taken_back_and_removed_by_command() -> None:
    node_credential("n1")
    assert "n1 new" in fleet("list")
    Node.objects.update(facts={"path": {"kernels": "torch", "slow": "no C compiler"}})
    assert "on local, slow: no C compiler: was never connected" in fleet("list")
    for command, standing in (("drain", "draining"), ("undrain", "active"), ("remove", "removed")):
        assert fleet(command, "n1") == "Done."
        assert Node.objects.get().standing == standing
        assert fleet(command, "n1") == "Nothing to change."
    assert "n1" not in fleet("list")
    with pytest.raises(CommandError, match="NODE"):
        fleet("drain", "nobody")
    with pytest.raises(CommandError, match="--deadline"):
        fleet("drain", "n1", "--deadline=-1")


def test_a_token_is_printed_alone() -> None:
    secret = fleet("token", "--approved", "--model=m")
    assert parse_credential(secret, ENROL_PREFIX)
    made = token_redeem(secret=secret, name="n2", pool="default").node
    assert made.standing == "active"
    for wrong in ("--pool=nowhere", "--hours=25", "--model="):
        with pytest.raises(CommandError, match=wrong.split("=")[0]):
            fleet("token", wrong)


def test_what_a_node_may_serve_is_said_by_command() -> None:
    node_credential("n1")
    fleet("allow", "n1", "--model=a")
    assert NodeCredential.objects.get().allowed_models == ["a"]
    ModelDigest.objects.create(model="m", digest="ab" * 32, offered_by="n1")
    ModelDigest.objects.create(model="m", digest="ac" * 32, offered_by="n1")
    assert "m abababababab waiting, offered by n1" in fleet("digests")
    with pytest.raises(CommandError, match="DIGEST"):
        fleet("digest-approve", "m", "a")
    assert fleet("digest-approve", "m", "ab") == "Done."
    assert fleet("digest-refuse", "m", "ac") == "Done."
    ModelDigest.objects.create(model="m", digest="", offered_by="n2")
    assert fleet("digest-approve", "m", "") == "Done."
    states = dict(ModelDigest.objects.values_list("digest", "state"))
    assert states == {"ab" * 32: "approved", "ac" * 32: "refused", "": "approved"}
