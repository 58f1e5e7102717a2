"""To whom an organization's documents go, on what terms and with which tax."""

import uuid
from typing import Any

import msgspec
from django.core.exceptions import PermissionDenied, ValidationError

from controlplane.billing.access import money_scope
from controlplane.billing.documents import models
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.mail import NOT_EMAIL, is_email
from controlplane.core.permissions import Action, organization_scope
from controlplane.tenants.access import allows, require


class ProfileDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """To whom documents go; terms and tax are set by those who grant credit.

    `terms_days` null takes the installation's.
    """

    name: str = ""
    address: str = ""
    tax_id: str = ""
    email: str = ""
    terms_days: int | None = None
    tax_basis_points: int = 0
    tax_jurisdiction: str = ""


_TERMS = ("terms_days", "tax_basis_points", "tax_jurisdiction")


def billing_profile_set(
    *, actor: Actor, organization_id: uuid.UUID, draft: ProfileDraft
) -> models.BillingProfile:
    """Set to whom documents go; terms and tax only by those who grant credit.

    Raises ValidationError that names the field. Documents that are issued stay as they are.
    """
    if not allows(actor, Action.CREDIT_GRANT):
        require(actor, Action.INVOICE_ISSUE, organization_id)
    wanted = _clean(draft)
    with organization_scope([organization_id]):
        known = models.BillingProfile.objects.filter(organization=organization_id).first()
        before = known or models.BillingProfile(organization=organization_id)
        if any(wanted[name] != getattr(before, name) for name in _TERMS) and not allows(
            actor, Action.CREDIT_GRANT
        ):
            raise PermissionDenied(Action.CREDIT_GRANT)
        made, _ = models.BillingProfile.objects.update_or_create(
            organization=organization_id, defaults=wanted
        )
        audit_record(actor, "billing_profile.set", subject=made, detail=wanted)
    return made


def _clean(draft: ProfileDraft) -> dict[str, Any]:
    wanted = msgspec.structs.asdict(draft) | {
        "name": " ".join(draft.name.split()),
        "address": "\n".join(filter(None, (row.strip() for row in draft.address.splitlines()))),
        "tax_id": " ".join(draft.tax_id.split()),
        "email": draft.email.strip(),
        "tax_jurisdiction": " ".join(draft.tax_jurisdiction.split()),
    }
    bounds = {
        "name": models.NAME_CHARS_MAX,
        "address": models.ADDRESS_CHARS_MAX,
        "tax_id": models.TAX_ID_CHARS_MAX,
        "tax_jurisdiction": models.JURISDICTION_CHARS_MAX,
    }
    for field, chars in bounds.items():
        if len(wanted[field]) > chars or not wanted[field].replace("\n", "").isprintable():
            raise ValidationError({field: f"Must have at most {chars} printable characters."})
    if wanted["email"] and not is_email(wanted["email"]):
        raise ValidationError({"email": NOT_EMAIL})
    if draft.terms_days is not None and not 0 <= draft.terms_days <= models.TERMS_DAYS_MAX:
        raise ValidationError({"terms_days": f"Must be 0 to {models.TERMS_DAYS_MAX}, or blank."})
    if not 0 <= draft.tax_basis_points <= models.BASIS_POINTS_MAX:
        raise ValidationError({"tax_basis_points": f"Must be 0 to {models.BASIS_POINTS_MAX}."})
    if draft.tax_basis_points and not wanted["tax_jurisdiction"]:
        raise ValidationError({"tax_jurisdiction": "Required if there is a tax."})
    return wanted


def invoice_get(
    *, actor: Actor, organization_id: uuid.UUID, invoice_id: uuid.UUID
) -> models.Invoice:
    """One document; raises DoesNotExist for those of others."""
    with money_scope(actor, organization_id):
        rows = models.Invoice.objects.select_related("corrects")
        return rows.get(id=invoice_id, organization=organization_id)


def billing_profile(*, actor: Actor, organization_id: uuid.UUID) -> models.BillingProfile:
    """To whom documents go; an empty one where none was set."""
    with money_scope(actor, organization_id):
        found = models.BillingProfile.objects.filter(organization=organization_id).first()
    return found or models.BillingProfile(organization=organization_id)
