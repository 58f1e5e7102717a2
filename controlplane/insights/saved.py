"""Questions of Explore that somebody saved under a name, for themselves or for all members."""

import uuid

from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Q

from controlplane.core.audit.entries import Facts, audit_record
from controlplane.core.permissions import Action
from controlplane.insights.models import SavedView
from controlplane.tenants.access import allows, permitted
from controlplane.tenants.models import User

# Of one person in one organization.
VIEWS_MAX = 50
VIEWS_SHOWN_MAX = 200


def view_list(*, actor: User, organization_id: uuid.UUID) -> list[SavedView]:
    """One's own and what others share, by name; the first `VIEWS_SHOWN_MAX`."""
    with permitted(actor, Action.REQUEST_VIEW, organization_id):
        rows = SavedView.objects.filter(Q(owner=actor) | Q(shared=True))
        rows = rows.filter(organization=organization_id).select_related("owner")
        return list(rows.order_by("name", "id")[:VIEWS_SHOWN_MAX])


def view_save(
    *, actor: User, organization_id: uuid.UUID, name: str, query: str, shared: bool
) -> SavedView:
    """Keep it, in place of one's own of that name; raises ValidationError for `name`, `query`."""
    with permitted(actor, Action.REQUEST_VIEW, organization_id):
        # Who saves twice at once waits here, so that nobody has more than the bound.
        User.objects.select_for_update(no_key=True).get(id=actor.id)
        own = SavedView.objects.filter(organization=organization_id, owner=actor)
        made = own.filter(name=name).first()
        if made is None:
            if own.count() >= VIEWS_MAX:
                told = f"You have saved {VIEWS_MAX} views: remove one first."
                raise ValidationError({"name": told})
            made = SavedView(organization=organization_id, owner=actor, name=name)
        if not name.isprintable():
            raise ValidationError({"name": "Must be printable characters."})
        made.query, made.shared = query, shared
        made.full_clean()
        made.save()
        _audit(actor, made, "view.save")
    return made


def view_remove(*, actor: User, organization_id: uuid.UUID, view_id: uuid.UUID) -> SavedView:
    """Forget it: its owner, or for a shared one who runs the organization."""
    with permitted(actor, Action.REQUEST_VIEW, organization_id):
        rows = SavedView.objects.filter(Q(owner=actor) | Q(shared=True))
        view = rows.get(id=view_id, organization=organization_id)
        if view.owner_id != actor.id and not allows(
            actor, Action.ORGANIZATION_UPDATE, organization_id
        ):
            raise PermissionDenied(Action.ORGANIZATION_UPDATE)
        _audit(actor, view, "view.remove")
        view.delete()
    return view


def _audit(actor: User, view: SavedView, action: str) -> None:
    detail: Facts = {"name": view.name, "query": view.query, "shared": view.shared}
    audit_record(actor, action, subject=view, organization_id=view.organization, detail=detail)
