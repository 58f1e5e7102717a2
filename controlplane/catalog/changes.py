"""Changing a model's bounds and pool; its name and task never change."""

from django.core.exceptions import ValidationError
from django.db import transaction

from controlplane.catalog.models import Model
from controlplane.catalog.pools import serving_pool
from controlplane.catalog.services import ModelDraft
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.permissions import Action
from controlplane.tenants.access import require


def model_change(*, actor: Actor, draft: ModelDraft) -> Model:
    """Give the model of that name these values; raises ValidationError by field."""
    require(actor, Action.CATALOG_MANAGE)
    with transaction.atomic():
        model = Model.objects.select_for_update().get(name=draft.name)
        if model.task != draft.task:
            raise ValidationError(
                {"task": "The task of a model cannot be changed; add a new model."}
            )
        serving_pool(draft.pool, draft.task)
        for name, value in vars(draft).items():
            setattr(model, name, value)
        model.full_clean()
        model.save()
        detail = dict(vars(draft))
        audit_record(actor, "model.change", subject=model, organization_id=None, detail=detail)
    return model
