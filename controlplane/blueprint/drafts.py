"""Drafts that a document gives: one of each organization's limits and budgets, one of all prices.
They say what differs from what is in force, and change nothing.
"""

import uuid
from collections.abc import Iterable, Iterator

import msgspec
from django.db.models import QuerySet
from msgspec.structs import asdict

from controlplane.blueprint import things
from controlplane.blueprint.applying import Applying
from controlplane.blueprint.steps import (
    NOTE,
    budget_draft,
    model_named,
    parts_of,
    price_draft,
    project_prices,
    subject_of,
)
from controlplane.changes.content import BudgetEntry, LimitEntry, PriceEntry
from controlplane.changes.limits import LimitChanges, public_subject
from controlplane.changes.models import ChangeVersion
from controlplane.changes.prices import PriceChanges
from controlplane.changes.versions import ChangeVersions
from controlplane.core.audit.entries import OPERATOR, Actor
from controlplane.core.permissions import organization_scope
from controlplane.core.versions.models import State
from controlplane.kernel.ids import public_id
from controlplane.tenants.models import Project
from controlplane.tenants.selectors import organization_ids

# Of an organization, None for prices.
DraftedEntry = tuple[uuid.UUID | None, msgspec.Struct]


def drafted_entries(step: Applying) -> Iterator[DraftedEntry]:
    """What a thing of the drafts says that is not so; raises ValidationError by field."""
    if step.key[0] == things.MODEL:
        model = model_named(step.key[-1])
        if step.changed("price"):
            yield None, PriceEntry(model=model.name, **vars(price_draft(step.after["price"])))
        return
    subject = subject_of(step)
    organization = subject.organization_id if isinstance(subject, Project) else subject.id
    of = public_subject(subject)
    for part in parts_of(step, things.LIMITS):
        fields = part.value or {}
        yield organization, LimitEntry(of=of, model=part.model, per_user=part.per_user, **fields)
    for part in parts_of(step, things.BUDGETS):
        terms = asdict(budget_draft(part.value)) if part.value else {}
        yield organization, BudgetEntry(of=of, model=part.model, per_user=part.per_user, **terms)
    if isinstance(subject, Project) and step.changed("prices"):
        whose = public_id("org", organization)
        for model, draft in project_prices(step):
            rates = vars(draft) if draft else {}
            yield None, PriceEntry(model=model.name, organization=whose, project=of, **rates)


def drafts_keep(actor: Actor, entries: Iterable[DraftedEntry]) -> bool:
    """Make the document's drafts say these; returns whether one did not yet. Raises
    ValidationError where one could not be published.
    """
    by: dict[uuid.UUID | None, list[msgspec.Struct]] = {}
    for organization, entry in entries:
        by.setdefault(organization, []).append(entry)
    kept = [
        _keep(LimitChanges(actor, of) if of else PriceChanges(actor), found)
        for of, found in by.items()
    ]
    return any(kept)


def drafts_end(actor: Actor, entries: Iterable[DraftedEntry]) -> Iterator[str]:
    """Discard what documents drafted and none of these says; the organizations, or `prices`."""
    said = {organization for organization, _ in entries}
    with organization_scope(organization_ids(user=OPERATOR)):
        found = list(_drafted(ChangeVersion.objects.select_related("organization")))
    for draft in found:
        if (of := draft.organization) is None and None not in said:
            PriceChanges(actor).draft_discard(draft)
            yield "prices"
        elif of is not None and of.id not in said:
            LimitChanges(actor, of.id).draft_discard(draft)
            yield of.name


def _drafted(rows: QuerySet[ChangeVersion]) -> QuerySet[ChangeVersion]:
    """Those of documents: a draft with the same note that a person made is theirs."""
    return rows.filter(state=State.DRAFT, note=NOTE, created_by=None)


def _keep(changes: ChangeVersions, entries: list[msgspec.Struct]) -> bool:
    content = msgspec.json.decode(msgspec.json.encode(changes.joined(entries)))
    with changes.alone():
        draft = _drafted(changes.rows).order_by("-version").first()
        if draft is not None and draft.content == content:
            return False
        if draft is None:
            draft = changes.draft_create(content, NOTE)
        else:
            draft = changes.draft_update(draft, content, NOTE)
        changes.checked(draft)
        return True
