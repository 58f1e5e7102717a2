"""How each kind of thing is made what the document says, by the services that pages use, too."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from django.core.exceptions import ValidationError

from controlplane.billing.budgets.services import (
    BudgetDraft,
    ProjectPart,
    Subject,
    budget_end,
    budget_plan,
)
from controlplane.blueprint import things
from controlplane.blueprint.applying import Applying
from controlplane.blueprint.members import member_end, member_step
from controlplane.blueprint.promises import objective_absent, objective_step, stage_step
from controlplane.blueprint.providers import connection_absent, connection_step
from controlplane.blueprint.tenants import organization_of
from controlplane.blueprint.things import below
from controlplane.catalog import services
from controlplane.catalog.models import Model
from controlplane.catalog.pools import pool_draft, pool_set
from controlplane.catalog.prompts import PromptVersions, prompt_create
from controlplane.catalog.selectors import model_find, prompt_get
from controlplane.connections.discard import model_discard
from controlplane.contents.services import Keeping, contents_configure
from controlplane.core.audit.entries import Actor
from controlplane.kernel.money import micro_from_usd, nano_from_usd
from controlplane.quotas.services import LimitedPart, LimitSet, rate_limit_set
from controlplane.routing.services import RuleVersions
from controlplane.tenants.models import Organization, Project
from controlplane.tenants.selectors import project_named
from controlplane.tenants.services import project_create, project_update, project_weigh

NOTE = "from a configuration document"
_MODEL_NEEDS = ("pool", "context_window")


def _pool(step: Applying) -> None:
    values = dict(step.after)
    if "card_hour_usd" in values:
        values["card_hour_micro"] = micro_from_usd(values.pop("card_hour_usd"))
    pool_set(actor=step.actor, draft=pool_draft(step.key[-1], values))


def _model(step: Applying) -> None:
    fields = dict(step.after)
    price, enabled = fields.pop("price", None), fields.pop("enabled", True)
    purchase = fields.pop("purchase", None)
    for name in _MODEL_NEEDS:
        if name not in fields:
            raise ValidationError({name: "Required for a new model."})
    draft = services.ModelDraft(name=step.key[-1], **fields)
    if step.before is None:
        model = services.model_create(actor=step.actor, draft=draft)
    elif step.changed(*fields):
        model = services.model_change(actor=step.actor, draft=draft)
    else:
        model = model_named(draft.name)
    if model.enabled != enabled:
        services.model_enable(actor=step.actor, model=model, enabled=enabled)
    if price is not None and step.changed("price"):
        services.price_publish(actor=step.actor, model=model, draft=price_draft(price))
    if step.changed("purchase"):
        bought = services.PurchaseDraft(**_pico(purchase or dict.fromkeys(things.PRICED, "0")))
        services.purchase_set(actor=step.actor, model=model, draft=bought)


def _model_absent(step: Applying) -> None:
    model_discard(actor=step.actor, model=model_named(step.key[-1]))


def _pico(fields: things.Fields) -> dict[str, int]:
    return {f"{name}_pico": micro_from_usd(fields[name]) for name in things.PRICED}


def price_draft(fields: things.Fields) -> services.PriceDraft:
    pico = _pico(fields)
    rest = {name: value for name, value in fields.items() if name not in things.PRICED}
    return services.PriceDraft(**pico, **rest)


def model_named(name: str) -> Model:
    found = model_find(name=name)
    if found is None:
        raise ValidationError({"name": f"Model {name!r} not found."})
    return found


def _organization(step: Applying) -> None:
    _limits(step, organization_of(step.key[-1]))


def _project(step: Applying) -> None:
    _, named, name = step.key
    organization = organization_of(named)
    project = project_named(organization, name=name)
    if project is None:
        project = project_create(actor=step.actor, organization=organization, name=name)
    if step.changed(*things.SETTINGS):
        settings = {
            column: step.after[name]
            for name, column in things.SETTINGS.items()
            if name in step.after
        }
        project_update(actor=step.actor, project=project, **settings)
    if step.changed("keeps_days", "content_readers"):
        wanted = {"keeps_days": project.keeps_days, "content_readers": project.content_readers}
        keeping = Keeping(*(step.after.get(name, value) for name, value in wanted.items()))
        contents_configure(actor=step.actor, project=project, keeping=keeping)
    if step.changed("weight"):
        project_weigh(actor=step.actor, project=project, weight=step.after["weight"])
    _limits(step, project)
    if step.changed("prices"):
        _prices(step, project)


def project_prices(step: Applying) -> Iterator[tuple[Model, services.PriceDraft | None]]:
    """Overrides that differ, and None for those that are left out: they end."""
    before, after = (step.before or {}).get("prices", {}), step.after["prices"]
    for name in sorted(before.keys() | after.keys()):
        if after.get(name) != before.get(name):
            yield model_named(name), price_draft(after[name]) if name in after else None


def _prices(step: Applying, project: Project) -> None:
    for model, draft in project_prices(step):
        if draft is None:
            services.price_override_end(actor=step.actor, model=model, project=project)
        else:
            services.price_publish(actor=step.actor, model=model, draft=draft, project=project)


class ConfiguredPart(NamedTuple):
    """A limit or a budget that is to be another, or none: its field, and of what it is."""

    field: str
    value: things.Fields | None
    model: str = ""
    per_user: bool = False


def parts_of(step: Applying, names: tuple[str, str, str]) -> Iterator[ConfiguredPart]:
    *alone, of_models = names
    for name, per_user in zip(alone, (False, True), strict=True):
        if step.changed(name):
            yield ConfiguredPart(name, step.after[name], per_user=per_user)
    if step.changed(of_models):
        before, after = (step.before or {}).get(of_models) or {}, step.after[of_models]
        for model in sorted(before.keys() | after.keys()):
            if after.get(model) != before.get(model):
                yield ConfiguredPart(f"{of_models}.{model}", after.get(model), model)


def _limits(step: Applying, subject: Organization | Project) -> None:
    for part in parts_of(step, things.LIMITS):
        limits = LimitSet(**(part.value or {}))
        limited = LimitedPart(subject, part.model, part.per_user)
        with below(part.field):
            rate_limit_set(actor=step.actor, subject=limited, **limits._asdict())


def subject_of(step: Applying) -> Organization | Project:
    """Of what it sets limits and budgets; raises ValidationError."""
    organization = organization_of(step.key[1])
    if step.key[0] != things.PROJECT:
        return organization
    project = project_named(organization, name=step.key[-1])
    if project is None:
        raise ValidationError({"name": f"Project {step.key[-1]!r} not found."})
    return project


def budget_parts(step: Applying) -> Iterator[tuple[Subject, ConfiguredPart]]:
    """Budgets to set of a thing whose other fields were set before."""
    for part in parts_of(step, things.BUDGETS):
        subject: Subject = subject_of(step)
        if isinstance(subject, Project) and (part.model or part.per_user):
            subject = ProjectPart(subject, part.model)
        yield subject, part


def budget_draft(fields: things.Fields) -> BudgetDraft:
    terms = {name: value for name, value in fields.items() if name != "usd"}
    terms["alerts"] = tuple(terms.get("alerts", ()))
    return BudgetDraft(allowance_nano=nano_from_usd(fields["usd"]), **terms)


def budget_step(actor: Actor, subject: Subject, part: ConfiguredPart) -> None:
    if part.value is None:
        budget_end(actor=actor, subject=subject)
        return
    with below(part.field):
        budget_plan(actor=actor, subject=subject, draft=budget_draft(part.value))


def _template(step: Applying) -> None:
    _, named, name = step.key
    organization = organization_of(named)
    wanted = step.after.get("project")
    project = project_named(organization, name=wanted) if wanted else None
    if wanted and project is None:
        raise ValidationError({"project": f"Project {wanted!r} not found."})
    if step.before is None:
        prompt_create(
            actor=step.actor,
            organization_id=organization.id,
            name=name,
            project_id=project.id if project else None,
        )
    elif step.changed("project"):
        raise ValidationError(
            {"project": "A template's project cannot be changed; create a new template."}
        )
    if step.changed("body"):
        template = prompt_get(actor=step.actor, organization_id=organization.id, name=name)
        body = step.after["body"]
        draft = PromptVersions(step.actor, template).draft_create(body, note=NOTE)
        PromptVersions(step.actor, draft.template).publish(draft)


def _routing(step: Applying) -> None:
    draft = RuleVersions(step.actor).draft_create(step.after["rules"], note=NOTE)
    RuleVersions(step.actor).publish(draft)


STEPS: dict[str, Callable[[Applying], None]] = {
    things.POOL: _pool,
    things.MODEL: _model,
    things.ORGANIZATION: _organization,
    things.PROJECT: _project,
    things.TEMPLATE: _template,
    things.ROUTING: _routing,
    things.CONNECTION: connection_step,
    things.STAGE: stage_step,
    things.OBJECTIVE: objective_step,
    things.MEMBER: member_step,
}
# What `absent: true` does.
ENDS: dict[str, Callable[[Applying], None]] = {
    things.MODEL: _model_absent,
    things.CONNECTION: connection_absent,
    things.OBJECTIVE: objective_absent,
    things.MEMBER: member_end,
}
