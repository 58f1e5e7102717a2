"""Configuration as code: export, compare, apply. One transaction, and nothing is ever deleted.

A dry run applies everything and rolls it back, so that it finds what applying would.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.db import transaction

from controlplane.billing.budgets.services import Subject, budget_id
from controlplane.blueprint.current import ORGANIZATIONS_MAX, current_things, organization_of
from controlplane.blueprint.document import Document
from controlplane.blueprint.steps import STEPS, Applying, ConfiguredPart, budget_parts, budget_step
from controlplane.blueprint.things import ORGANIZATION, Fields, Thing, below, document_of, things_of
from controlplane.blueprint.yamltext import Lines, line_of, read_yaml, write_yaml
from controlplane.core.api.shapes import read_shape
from controlplane.core.audit.entries import Actor, Operator
from controlplane.core.permissions import Action
from controlplane.tenants.access import require
from controlplane.tenants.selectors import organizations_all


class ValueChange(NamedTuple):
    """One field that differs; `before` is None where the thing is new."""

    path: str
    before: Any
    after: Any


class _OnBehalf(Operator):
    """Staff who apply a configuration act as the operator does, under their own name."""

    def __init__(self, actor: Actor) -> None:
        self.actor_id: uuid.UUID | None = actor.actor_id
        self.actor_label = actor.actor_label


def configuration_export(*, actor: Actor, names: list[str] | None = None) -> str:
    """YAML of the installation and the organizations named, or all of them."""
    require(actor, Action.CONFIG_MANAGE)
    if names is None:
        organizations = organizations_all(rows_max=ORGANIZATIONS_MAX)
    else:
        organizations = [organization_of(name) for name in names]
    return write_yaml(document_of(current_things(_acting(actor), organizations)))


def configuration_validate(*, actor: Actor, text: str) -> None:
    """Raises ValidationError by path, with lines, where the document cannot be applied."""
    configuration_apply(actor=actor, text=text, dry_run=True)


def configuration_apply(*, actor: Actor, text: str, dry_run: bool = True) -> list[ValueChange]:
    """What changes, and unless it is a dry run, change it: all or nothing."""
    require(actor, Action.CONFIG_MANAGE)
    value, lines = read_yaml(text)
    with _located(lines):
        wanted = things_of(read_shape(value, Document, field=""))
        with transaction.atomic():
            changes = _apply(_acting(actor), wanted)
            if dry_run:
                transaction.set_rollback(True)
    return changes


def _apply(actor: Actor, wanted: list[Thing]) -> list[ValueChange]:
    now = current_things(actor, _organizations(wanted))
    changes: list[ValueChange] = []
    budgets: list[tuple[Thing, Subject, ConfiguredPart]] = []
    for thing in wanted:
        before = now.get(thing.key)
        after = {**(before or {}), **thing.fields}
        found = list(_differences(thing, before))
        if not found and before is not None:
            continue
        changes += found or [ValueChange(thing.path, None, thing.key[-1])]
        step = Applying(actor, thing.key, before, after)
        with below(thing.path):
            STEPS[thing.key[0]](step)
        budgets.extend((thing, *each) for each in budget_parts(step))
    # Last, and in the order of their ids: every hold locks these rows, and in that order.
    for thing, subject, part in sorted(budgets, key=lambda one: budget_id(one[1])):
        with below(thing.path):
            budget_step(actor, subject, part)
    return changes


def _differences(thing: Thing, before: Fields | None) -> Iterator[ValueChange]:
    for name, value in thing.fields.items():
        had = None if before is None else before.get(name)
        if before is None or had != value:
            yield ValueChange(f"{thing.path}.{name}", had, value)


def _organizations(wanted: list[Thing]) -> list[Any]:
    found = []
    for thing in wanted:
        if thing.key[0] == ORGANIZATION:
            with below(thing.path):
                found.append(organization_of(thing.key[-1]))
    return found


def _acting(actor: Actor) -> Actor:
    return actor if isinstance(actor, Operator) else _OnBehalf(actor)


@contextmanager
def _located(lines: Lines) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        told: dict[str, list[str]] = {}
        for path, messages in error.message_dict.items():
            line = line_of(path, lines)
            where = f" (line {line})" if line else ""
            told[path] = [f"{message}{where}" for message in messages]
        raise ValidationError(told) from error
