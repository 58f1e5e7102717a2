"""What an organization requires of its members beyond their role: a second factor."""

import uuid

from django.core.exceptions import ValidationError
from django.utils import timezone

from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.tenants.access import LACKS_FACTOR, require
from controlplane.tenants.models import Membership, Organization, User
from controlplane.tenants.sign_in.factors import has_factors


def second_factor_require(*, actor: Actor, organization_id: uuid.UUID, required: bool) -> bool:
    """Ask for a second factor of every member, or no longer; False where it was so before.

    For owners. Members without one keep their account page alone, and their Playground tokens end.
    Raises ValidationError on `second_factor_required` for an owner who has none.
    """
    require(actor, Action.SECURITY_SET, organization_id)
    if required and isinstance(actor, User) and not has_factors(user=actor):
        told = "Add a second factor to your own account first."
        raise ValidationError({"second_factor_required": told})
    with organization_scope([organization_id]):
        rows = Organization.objects.filter(id=organization_id)
        # The condition decides a race; losing it is an ordinary answer.
        if not rows.exclude(second_factor_required=required).update(
            second_factor_required=required
        ):
            return False
        lacking = Membership.objects.filter(LACKS_FACTOR, organization_id=organization_id)
        users = list(lacking.values_list("user_id", flat=True))
        User.objects.filter(id__in=users).update(tokens_from=timezone.now())
        audit_record(
            actor,
            "organization.second_factor",
            subject=rows.get(),
            organization_id=organization_id,
            detail={"members_without": len(users)},
            changed=(
                {"second_factor_required": not required},
                {"second_factor_required": required},
            ),
        )
    return True
