"""Removing models from the catalogue, where no rule, connection or node needs them."""

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from controlplane.catalog.models import Model
from controlplane.catalog.services import model_remove
from controlplane.connections.models import ConnectionModel
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.fleet.overview import nodes_of_models
from controlplane.hosts.models import Deployment
from controlplane.routing.aliases import rules_leading_to
from controlplane.tenants.access import require


def model_needs(*, actor: Actor, model: Model) -> list[str]:
    """What needs the model, in words; empty where it can be removed."""
    require(actor, Action.CATALOG_MANAGE)
    needs = [f"the rule {name} leads to it" for name in rules_leading_to(model.name)]
    rows = ConnectionModel.objects.filter(model=model, withdrawn_at=None)
    needs += [f"the connection {row.connection.name} serves it" for row in rows]
    deployments = Deployment.objects.filter(model=model.name, removed_at=None).order_by("name")
    needs += [f"the deployment {row.name} runs it" for row in deployments]
    views = nodes_of_models(timezone.now(), {model.name})
    needs += [
        f"the node {view.node.name} serves it"
        for view in views
        if view.ready and model.name in view.serves
    ]
    return needs


@transaction.atomic
def model_discard(*, actor: Actor, model: Model) -> None:
    """Remove it; raises ValidationError that says what needs it."""
    if needs := model_needs(actor=actor, model=model):
        raise ValidationError({"model": f"It is still needed: {'; '.join(needs)}."})
    model_remove(actor=actor, model=model)
