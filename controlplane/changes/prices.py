"""Prices of models, for all or for single projects, as a change."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from uuid import UUID

from django.core.exceptions import ObjectDoesNotExist
from django.utils import timezone
from msgspec.structs import asdict

from controlplane.catalog.models import Model, PriceVersion
from controlplane.catalog.selectors import model_find, price_list_all, version_in_force
from controlplane.catalog.services import PriceDraft, check_price, price_override_end, price_publish
from controlplane.changes.content import NAMED, PriceEntry, PricesContent
from controlplane.changes.limits import nothing
from controlplane.changes.models import ChangeKind
from controlplane.changes.versions import ChangeEntry, ChangeVersions
from controlplane.core.permissions import Action
from controlplane.kernel.ids import uuid_of
from controlplane.tenants.models import Project
from controlplane.tenants.selectors import project_share

FIELDS = tuple(PriceDraft.__annotations__)
RATES = FIELDS[:3]
NO_MODEL = ("model", "Must be the name of a model.")
NO_PROJECT = ("project", "Must be the id of a project, with the id of its organization.")
NO_RATES = ("input_pico", "All three rates are required, or none to end a project's price.")


class PriceChanges(ChangeVersions):
    of, shape, named = ChangeKind.PRICES, PricesContent, NAMED
    needs = Action.CATALOG_MANAGE

    def entries(self, content: PricesContent) -> Iterator[ChangeEntry]:
        for place, wanted in enumerate(content.prices):
            path, model = f"content.prices[{place}]", model_find(name=wanted.model)
            project = self._project(wanted) if wanted.project or wanted.organization else None
            missing = _missing(wanted, model, project)
            if model is None or missing is not None:
                yield nothing(path, wanted.model, wanted, missing or NO_MODEL)
                continue
            yield self._entry(path, wanted, model, project)

    def joined(self, entries: Iterable[object]) -> PricesContent:
        return PricesContent(tuple(one for one in entries if isinstance(one, PriceEntry)))

    def _entry(
        self, path: str, wanted: PriceEntry, model: Model, project: Project | None
    ) -> ChangeEntry:
        paid = version_in_force(
            price_list_all(actor=self.actor, model=model),
            project_id=project.id if project else None,
            at=timezone.now(),
        )
        check: Callable[[], object] = tuple
        if wanted.input_pico is None and project is not None:
            put = partial(price_override_end, actor=self.actor, model=model, project=project)
        else:
            draft = PriceDraft(**{name: getattr(wanted, name) for name in FIELDS})
            put = partial(
                price_publish, actor=self.actor, model=model, draft=draft, project=project
            )
            check = partial(check_price, model, draft)
        name = f"{model.name}, {project.name}" if project else model.name
        key = ("price", model.name, str(project.id) if project else "")
        return ChangeEntry(path, name, key, _entry_of(wanted, paid), wanted, check, put)

    def _project(self, wanted: PriceEntry) -> Project | None:
        try:
            return project_share(
                actor=self.actor,
                project_id=uuid_of(wanted.project, "proj"),
                organization_id=uuid_of(wanted.organization, "org"),
            )
        except (ValueError, ObjectDoesNotExist):
            return None


def changed_prices(content: PricesContent) -> dict[tuple[str, UUID | None], PriceEntry]:
    """What a content says, by model and project; None is for all."""
    return {
        (one.model, uuid_of(one.project, "proj") if one.project else None): one
        for one in content.prices
    }


def _missing(
    wanted: PriceEntry, model: Model | None, project: Project | None
) -> tuple[str, str] | None:
    if model is None:
        return NO_MODEL
    if project is None and (wanted.project or wanted.organization):
        return NO_PROJECT
    given = [getattr(wanted, name) is not None for name in RATES]
    return None if all(given) or (project is not None and not any(given)) else NO_RATES


def _entry_of(wanted: PriceEntry, paid: PriceVersion | None) -> PriceEntry:
    """What is paid now, as an entry of the same thing."""
    of = {name: value for name, value in asdict(wanted).items() if name in NAMED}
    return PriceEntry(**of, **({name: getattr(paid, name) for name in FIELDS} if paid else {}))
