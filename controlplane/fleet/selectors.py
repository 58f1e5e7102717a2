"""Reads of nodes, of their digests and of their starts."""

from datetime import datetime
from typing import Any, TypeVar

from django.db.models import Case, IntegerField, Value, When

from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.fleet import models
from controlplane.tenants.access import require

NODES_SHOWN_MAX = 1_000
DIGESTS_SHOWN_MAX = 500
TOKENS_SHOWN_MAX = 100
STARTS_READ_MAX = 1_000
Row = TypeVar("Row", models.Node, models.EnrolmentToken, models.ModelDigest)


def fleet_get(of: type[Row], *, user: Actor, **by: Any) -> Row:
    """One node, token or digest, for staff; raises ObjectDoesNotExist."""
    require(user, Action.FLEET_VIEW)
    return of.objects.get(**by)


def nodes_named(*, user: Actor, text: str, rows_max: int) -> list[models.Node]:
    """Nodes whose name has this text in it, for staff."""
    require(user, Action.FLEET_VIEW)
    return list(models.Node.objects.filter(name__icontains=text).order_by("name")[:rows_max])


def node_hardware(*, user: Actor, name: str) -> dict[str, str]:
    """Engine, device and number format of a node as it last said, for staff."""
    require(user, Action.FLEET_VIEW)
    facts = models.Node.objects.filter(name=name).values_list("facts", flat=True).first() or {}
    return {word: str(facts[word]) for word in ("engine", "device", "dtype") if facts.get(word)}


def token_list(*, user: Actor, now: datetime) -> list[models.EnrolmentToken]:
    """Enrolment tokens that still let a node in, newest first, for staff."""
    require(user, Action.FLEET_VIEW)
    rows = models.EnrolmentToken.objects.filter(used_at=None, expires_at__gt=now)
    return list(rows.order_by("-id")[:TOKENS_SHOWN_MAX])


def digest_list(*, user: Actor) -> list[models.ModelDigest]:
    """Digests that nodes have offered, those that wait first, for staff."""
    require(user, Action.FLEET_VIEW)
    waits = When(state=models.DigestState.WAITING, then=Value(0))
    order = Case(waits, default=Value(1), output_field=IntegerField())
    return list(models.ModelDigest.objects.order_by(order, "model", "-id")[:DIGESTS_SHOWN_MAX])


def cold_starts(*, pool: str) -> list[int]:
    """Milliseconds of the pool's newest starts, newest first."""
    rows = models.NodeStart.objects.filter(pool=pool).order_by("-created_at")
    return list(rows.values_list("cold_start_ms", flat=True)[:STARTS_READ_MAX])


def node_credential_active(*, node_name: str) -> list[models.NodeCredential]:
    """Credentials with which a node of that name may dial in."""
    rows = models.NodeCredential.objects.select_related("node").filter(node__name=node_name)
    return list(rows.filter(revoked_at=None).order_by("id"))


def pool_regions() -> dict[str, frozenset[str]]:
    """Regions in which each pool has a node connected now."""
    found: dict[str, set[str]] = {}
    for pool, region in models.Node.objects.filter(state=models.NodeState.CONNECTED).values_list(
        "pool", "region"
    ):
        found.setdefault(pool, set()).add(region)
    return {pool: frozenset(regions) for pool, regions in found.items()}
