"""Limits and budgets of one organization as a change."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from controlplane.billing.budgets.models import UNLIMITED_NANO, Budget
from controlplane.billing.budgets.services import (
    BudgetDraft,
    ProjectPart,
    budget_end,
    budget_id,
    budget_plan,
    check_budget,
)
from controlplane.billing.budgets.services import Subject as BudgetSubject
from controlplane.changes.content import NAMED, BudgetEntry, LimitEntry, LimitPart, LimitsContent
from controlplane.changes.models import ChangeKind
from controlplane.changes.versions import ChangeEntry, ChangeVersions
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.kernel.ids import public_id, uuid_of
from controlplane.quotas.models import RateLimit
from controlplane.quotas.services import (
    LimitedPart,
    LimitSet,
    Subject,
    check_limits,
    rate_limit_set,
)
from controlplane.tenants.access import require
from controlplane.tenants.models import ApiKey, Organization, Project

UNKNOWN = ("of", "Must be the id of the organization, or of one of its projects or keys.")
NO_PART = ("model", "Only a project's budget may be of a model or of each end user, and of one.")
PREFIXES: dict[Any, str] = {Organization: "org", Project: "proj", ApiKey: "key"}


class LimitChanges(ChangeVersions):
    of, shape, named = ChangeKind.LIMITS, LimitsContent, NAMED
    needs = Action.LIMIT_SET

    def __init__(self, actor: Actor, organization_id: uuid.UUID) -> None:
        super().__init__(actor, organization_id)
        self.scope = organization_id

    def entries(self, content: LimitsContent) -> Iterator[ChangeEntry]:
        subjects = self.subjects(one.of for one in (*content.limits, *content.budgets))
        for place, limit in enumerate(content.limits):
            yield self._limit(f"content.limits[{place}]", subjects.get(limit.of), limit)
        if content.budgets:
            require(self.actor, Action.BUDGET_SET, self.scope)
        for place, budget in enumerate(content.budgets):
            yield self._budget(f"content.budgets[{place}]", subjects.get(budget.of), budget)

    def joined(self, entries: Iterable[object]) -> LimitsContent:
        found = list(entries)
        return LimitsContent(
            limits=tuple(one for one in found if isinstance(one, LimitEntry)),
            budgets=tuple(one for one in found if isinstance(one, BudgetEntry)),
        )

    def subjects(self, ids: Iterable[str]) -> dict[str, Subject]:
        """What ids name, as they were written; strangers' are left out."""
        found: dict[str, Subject] = {}
        for text in set(ids):
            for model, prefix in PREFIXES.items():
                try:
                    wanted = uuid_of(text, prefix)
                except ValueError:
                    continue
                field = "id" if model is Organization else "organization_id"
                subject = model.objects.filter(id=wanted).filter(**{field: self.scope}).first()
                if subject is not None:
                    found[text] = subject
        return found

    def _limit(self, path: str, subject: Subject | None, wanted: LimitEntry) -> ChangeEntry:
        if subject is None:
            return nothing(path, wanted.of, wanted, UNKNOWN)
        part = LimitPart(wanted.model, wanted.per_user)
        limits = {name: getattr(wanted, name) for name in LimitSet._fields}
        row = RateLimit.objects.filter(subject_id=subject_id(subject), **part._asdict()).first()
        now: dict[str, Any] = {name: getattr(row, name, None) for name in limits}
        put = partial(
            rate_limit_set, actor=self.actor, subject=LimitedPart(subject, *part), **limits
        )
        return ChangeEntry(
            path,
            f"{subject_words(subject)}{part.words}",
            ("limit", str(subject_id(subject)), *map(str, part)),
            LimitEntry(**thing_of(wanted), **now),
            wanted,
            partial(check_limits, LimitSet(**limits), *part),
            put,
        )

    def _budget(self, path: str, subject: Subject | None, wanted: BudgetEntry) -> ChangeEntry:
        part = LimitPart(wanted.model, wanted.per_user)
        if subject is None:
            return nothing(path, wanted.of, wanted, UNKNOWN)
        name = f"Budget of {subject_words(subject)}{part.words}"
        if any(part) and (all(part) or not isinstance(subject, Project)):
            return nothing(path, name, wanted, NO_PART)
        of: BudgetSubject = subject
        if isinstance(subject, Project) and any(part):
            of = ProjectPart(subject, part.model)
        budget = Budget.objects.filter(id=budget_id(of)).select_related("terms").first()
        fields = {name: getattr(wanted, name) for name in BudgetDraft.__struct_fields__}
        check: Callable[[], object] = tuple
        if wanted.allowance_nano is None:
            put = partial(budget_end, actor=self.actor, subject=of)
        else:
            draft = BudgetDraft(**fields)
            put = partial(budget_plan, actor=self.actor, subject=of, draft=draft)
            check = partial(check_budget, of, draft)
        now = BudgetEntry(**thing_of(wanted), **terms_now(budget))
        return ChangeEntry(path, name, ("budget", str(budget_id(of))), now, wanted, check, put)


def terms_now(budget: Budget | None) -> dict[str, Any]:
    """The terms of a budget, as an entry says them; none where there is none."""
    if budget is None or budget.lim >= UNLIMITED_NANO:
        return {}
    terms = getattr(budget, "terms", None)
    if terms is None:
        return {"allowance_nano": budget.lim}
    names = ("period", "zone", "rollover")
    told = {name: getattr(terms, name) for name in names}
    return {"allowance_nano": terms.allowance, **told, "alerts": tuple(sorted(terms.alerts))}


def thing_of(entry: LimitEntry | BudgetEntry) -> dict[str, Any]:
    return {name: value for name, value in asdict(entry).items() if name in NAMED}


def subject_id(subject: Subject) -> uuid.UUID:
    """The id under which its limits are kept."""
    return subject.limits_id if isinstance(subject, ApiKey) else subject.id


def subject_words(subject: Subject) -> str:
    if isinstance(subject, ApiKey):
        return f"Key {subject.label}"
    return f"Project {subject.name}" if isinstance(subject, Project) else subject.name


def public_subject(subject: Subject) -> str:
    return public_id(PREFIXES[type(subject)], subject.id)


def nothing(path: str, name: str, wanted: Struct, missing: tuple[str, str]) -> ChangeEntry:
    """An entry that names nothing: it is never put in force."""
    return ChangeEntry(path, name, (path,), None, wanted, tuple, tuple, missing)
