"""The configuration as it is now, as things; secrets and keys are no part of it."""

from collections.abc import Iterable
from typing import Any

from django.utils import timezone

from controlplane.billing.budgets.models import UNLIMITED_NANO, Budget
from controlplane.billing.budgets.selectors import budget_parts_of, budgets_of
from controlplane.blueprint import things
from controlplane.blueprint.members import members_now
from controlplane.blueprint.promises import objectives_now, stages_now
from controlplane.blueprint.providers import connections_now
from controlplane.catalog import selectors
from controlplane.catalog.models import Model, Pool, PriceVersion
from controlplane.catalog.services import purchase_now
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import organization_scope
from controlplane.kernel.money import usd_from_micro
from controlplane.quotas.models import LIMITS_MAX, RateLimit
from controlplane.quotas.selectors import limit_parts_of
from controlplane.routing.selectors import ruleset_in_force
from controlplane.tenants.models import Organization, Project
from controlplane.tenants.selectors import projects_of

ORGANIZATIONS_MAX = 200


def current_things(
    actor: Actor, organizations: Iterable[Organization]
) -> dict[things.Key, things.Fields]:
    """All of the installation's, and those of these organizations."""
    found: dict[things.Key, things.Fields] = {}
    for pool in selectors.pool_list():
        found[(things.POOL, pool.name)] = pool_fields(pool)
    for model in selectors.model_list():
        found[(things.MODEL, model.name)] = model_fields(model)
    found |= connections_now() | stages_now() | objectives_now(actor, None)
    for organization in organizations:
        found.update(_tenant(actor, organization))
    in_force = ruleset_in_force()
    if in_force is not None:
        found[(things.ROUTING,)] = things.canonical({"rules": in_force.rules})
    return found


def pool_fields(pool: Pool) -> things.Fields:
    """A pool without what the local driver runs."""
    names = (
        "task", "role", "nodes_min", "nodes_max", "warm_schedule", "cards_per_node",
        "separate_caches", "plan_mode",
    )  # fmt: skip
    fields = {name: getattr(pool, name) for name in names}
    return {**fields, "card_hour_usd": usd_from_micro(pool.card_hour_micro)}


def model_fields(model: Model) -> things.Fields:
    """A model with its price in force, if it has one."""
    names = (
        "task", "pool", "context_window", "output_tokens_default", "output_tokens_max", "owner",
        "images_max", "image_tokens_max", "image_patch", "enabled",
    )  # fmt: skip
    fields = {name: getattr(model, name) for name in names}
    price = _in_force(selectors.price_list(model=model), None)
    if price is not None:
        fields["price"] = price
    fields["purchase"] = _purchase(model)
    return fields


def _purchase(model: Model) -> things.Fields | None:
    """What its tokens cost to buy; None where they are not bought."""
    bought = purchase_now(model=model)
    rates = {name: getattr(bought, f"{name}_pico", 0) for name in things.PRICED}
    return (
        {name: usd_from_micro(rates[name]) for name in things.PRICED}
        if any(rates.values())
        else None
    )


def _in_force(versions: list[PriceVersion], project: Project | None) -> things.Fields | None:
    """What all pay, or what a project pays instead; None without."""
    wanted = project.id if project else None
    last = selectors.version_in_force(versions, project_id=wanted, at=timezone.now())
    if last is None:
        return None
    rates = {name: usd_from_micro(getattr(last, f"{name}_pico")) for name in things.PRICED}
    factors = {name: getattr(last, name) for name in ("batch_permille", "priority_permille")}
    found: things.Fields = things.canonical({"price": {**rates, **factors}})["price"]
    return found


def _tenant(actor: Actor, organization: Organization) -> dict[things.Key, things.Fields]:
    found: dict[things.Key, things.Fields] = {}
    projects = projects_of(organization)
    with organization_scope([organization.id]):
        ids = [organization.id, *(project.id for project in projects)]
        limits, parts = limit_parts_of(ids), budget_parts_of(ids)
        budgets = budgets_of([*ids, *(part.budget for part in parts)])
        prices = {model.name: selectors.price_list(model=model) for model in selectors.model_list()}
    names = {project.id: project.name for project in projects}

    def money_and_limits(one: Organization | Project) -> things.Fields:
        fields = {**_limits(limits.get(one.id, [])), "budget": _budget(budgets.get(one.id))}
        return fields if isinstance(one, Organization) else fields | budgets_of_parts(one)

    def budgets_of_parts(one: Project) -> things.Fields:
        own = [each for each in parts if each.project == one.id]
        mine = {each.model: _budget(budgets.get(each.budget)) for each in own}
        users = mine.pop(None, None)
        return {"user_budget": users, "model_budgets": {m: b for m, b in mine.items() if b}}

    found[(things.ORGANIZATION, organization.name)] = money_and_limits(organization)
    found |= members_now(actor, organization) | objectives_now(actor, organization)
    for project in projects:
        paid = {name: _in_force(versions, project) for name, versions in prices.items()}
        found[(things.PROJECT, organization.name, project.name)] = {
            **{name: getattr(project, column) for name, column in things.SETTINGS.items()},
            "keeps_days": project.keeps_days,
            "content_readers": project.content_readers,
            "weight": project.weight,
            "prices": {name: price for name, price in paid.items() if price is not None},
            **money_and_limits(project),
        }
    for listed in selectors.prompt_list(actor=actor, organization_id=organization.id):
        template = listed.template
        fields: things.Fields = {
            "project": names.get(template.project_id) if template.project_id else None
        }
        if listed.published is not None:
            version = selectors.prompt_version_get(
                actor=actor, template=template, version=listed.published
            )
            fields["body"] = things.canonical({"body": version.body})["body"]
        found[(things.TEMPLATE, organization.name, template.name)] = fields
    return found


def _limits(found: Iterable[RateLimit]) -> things.Fields:
    """Of all requests, of each end user's and of each model's."""
    fields: things.Fields = {"limits": None, "user_limits": None, "model_limits": {}}
    for row in found:
        limits = {name: getattr(row, name) for name in LIMITS_MAX}
        if row.model:
            fields["model_limits"][row.model] = limits
        else:
            fields["user_limits" if row.per_user else "limits"] = limits
    return things.canonical(fields)


def _budget(budget: Budget | None) -> Any:
    terms = getattr(budget, "terms", None)
    if budget is None or budget.lim >= UNLIMITED_NANO or terms is None:
        return None
    fields = {name: getattr(terms, name) for name in ("period", "zone", "rollover", "alerts")}
    usd = things.usd_plain(terms.allowance)
    return things.canonical({"budget": {"usd": usd, **fields}})["budget"]
