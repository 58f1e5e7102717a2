"""Documents of an organization, for those who may see its money."""

import uuid

from controlplane.billing.access import may_see_money
from controlplane.billing.documents.models import BillingProfile, Invoice
from controlplane.core.audit.entries import Actor
from controlplane.core.scope import organization_scope


def invoice_get(*, actor: Actor, organization_id: uuid.UUID, invoice_id: uuid.UUID) -> Invoice:
    """One document; raises DoesNotExist for those of others."""
    may_see_money(actor, organization_id)
    with organization_scope([organization_id]):
        rows = Invoice.objects.select_related("corrects")
        return rows.get(id=invoice_id, organization=organization_id)


def billing_profile(*, actor: Actor, organization_id: uuid.UUID) -> BillingProfile:
    """To whom documents go; an empty one where none was set."""
    may_see_money(actor, organization_id)
    with organization_scope([organization_id]):
        found = BillingProfile.objects.filter(organization=organization_id).first()
    return found or BillingProfile(organization=organization_id)
