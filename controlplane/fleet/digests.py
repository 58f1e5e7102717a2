"""Which tokenizers and chat templates gateways may fetch from nodes and use: staff's decision."""

from django.db import transaction
from django.utils import timezone

from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.permissions import Action
from controlplane.fleet.models import DigestState, ModelDigest
from controlplane.tenants.access import require
from controlplane.tenants.models import User


def digest_decide(*, actor: Actor, digest: ModelDigest, approved: bool) -> bool:
    """Approve or refuse an offered digest; False where that was decided before."""
    require(actor, Action.FLEET_MANAGE)
    state = DigestState.APPROVED if approved else DigestState.REFUSED
    with transaction.atomic():
        changed = (
            ModelDigest.objects.filter(id=digest.id)
            .exclude(state=state)
            .update(
                state=state,
                decided_at=timezone.now(),
                decided_by=actor if isinstance(actor, User) else None,
            )
        )
        if changed:
            audit_record(
                actor,
                "model_digest.approve" if approved else "model_digest.refuse",
                subject=digest,
                organization_id=None,
                detail={"model": digest.model, "digest": digest.digest},
            )
    return bool(changed)
