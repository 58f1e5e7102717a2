"""Configuration as code: export, compare, apply, one or many documents in one transaction.

Only what a document calls absent is taken away. A dry run applies everything and rolls it back, so
that it finds what applying would.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.db import transaction

from controlplane.billing.budgets.services import Subject, budget_id
from controlplane.blueprint.applying import Applying
from controlplane.blueprint.current import ORGANIZATIONS_MAX, current_things
from controlplane.blueprint.document import Document
from controlplane.blueprint.drafts import DraftedEntry, drafted_entries, drafts_end, drafts_keep
from controlplane.blueprint.providers import KEY, key_is_used
from controlplane.blueprint.steps import ENDS, STEPS, ConfiguredPart, budget_parts, budget_step
from controlplane.blueprint.tenants import organization_of
from controlplane.blueprint.things import (
    CONNECTION,
    KINDS,
    ORGANIZATION,
    Fields,
    Key,
    Thing,
    below,
    check_once,
    document_of,
    things_of,
)
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


# From where a document says to the key that is there.
KeyReader = Callable[[Fields], str]


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


def configuration_apply(
    *, actor: Actor, text: str, dry_run: bool = True, keys: KeyReader | None = None
) -> list[ValueChange]:
    """What changes, and unless it is a dry run, change it: all or nothing."""
    return documents_apply(actor=actor, documents={"": text}, dry_run=dry_run, keys=keys)


def documents_apply(
    *,
    actor: Actor,
    documents: Mapping[str, str],
    dry_run: bool = True,
    keys: KeyReader | None = None,
) -> list[ValueChange]:
    """The same of several by their names, as one; errors name theirs: `models.yaml: pools[0].size`.

    `keys` reads keys of providers where a document says. Without it such a document is refused:
    whoever is not on this host may not learn what its files hold.
    """
    require(actor, Action.CONFIG_MANAGE)
    wanted: list[Thing] = []
    lines: Lines = {}
    drafts = False
    for name, text in documents.items():
        prefix = f"{name}: " if name else ""
        with _named(prefix):
            found, found_lines = _read(text)
        wanted += [thing._replace(path=f"{prefix}{thing.path}") for thing in found]
        drafts |= "drafts" in found_lines
        lines |= {f"{prefix}{path}": line for path, line in found_lines.items()}
    wanted.sort(key=lambda thing: KINDS.index(thing.key[0]))
    with _located(lines):
        check_once(wanted)
        secrets = _secrets(wanted, keys)
        with transaction.atomic():
            changes = _apply(_acting(actor), wanted, secrets)
            if drafts:
                changes += _draft(_acting(actor), [thing for thing in wanted if thing.draft])
            if dry_run:
                transaction.set_rollback(True)
    return changes


def _read(text: str) -> tuple[list[Thing], Lines]:
    value, lines = read_yaml(text)
    with _located(lines):
        return things_of(read_shape(value, Document, field="")), lines


def _secrets(wanted: list[Thing], keys: KeyReader | None) -> dict[Key, str]:
    found = {}
    for thing in wanted:
        if thing.key[0] != CONNECTION or KEY not in thing.fields:
            continue
        with below(thing.path):
            if keys is None:
                raise ValidationError({KEY: "Only `sluice config` reads keys, on its own host."})
            found[thing.key] = keys(thing.fields[KEY])
    return found


def _apply(actor: Actor, said: list[Thing], secrets: Mapping[Key, str]) -> list[ValueChange]:
    wanted = [thing for thing in said if not thing.draft]
    now = current_things(actor, _organizations(wanted))
    for key, secret in secrets.items():
        if key in now and key_is_used(key[-1], secret):
            now[key][KEY] = next(thing.fields[KEY] for thing in wanted if thing.key == key)
    changes: list[ValueChange] = []
    budgets: list[tuple[Thing, Subject, ConfiguredPart]] = []
    for thing in wanted:
        before = now.get(thing.key)
        after = {**(before or {}), **thing.fields}
        found = list(_differences(thing, before))
        if thing.absent or (not found and before is not None):
            continue
        changes += found or [ValueChange(thing.path, None, thing.key[-1])]
        step = Applying(actor, thing.key, before, after, secrets.get(thing.key, ""))
        with below(thing.path):
            STEPS[thing.key[0]](step)
        budgets.extend((thing, *each) for each in budget_parts(step))
    # Last, and in the order of their ids: every hold locks these rows, and in that order.
    for thing, subject, part in sorted(budgets, key=lambda one: budget_id(one[1])):
        with below(thing.path):
            budget_step(actor, subject, part)
    return changes + _end(actor, [thing for thing in wanted if thing.absent], now)


def _draft(actor: Actor, drafted: list[Thing]) -> list[ValueChange]:
    """What drafts make another, where they do not say it already, and those that are no more."""
    now = current_things(actor, _organizations(drafted)) if drafted else {}
    changes: list[ValueChange] = []
    entries: list[DraftedEntry] = []
    for thing in drafted:
        before = now.get(thing.key)
        changes += _differences(thing, before)
        with below(thing.path):
            after = {**(before or {}), **thing.fields}
            entries += drafted_entries(Applying(actor, thing.key, before, after))
    ended = [ValueChange("drafts", name, None) for name in drafts_end(actor, entries)]
    with below("drafts"):
        return ended + (changes if drafts_keep(actor, entries) else [])


def _end(actor: Actor, absent: list[Thing], now: Mapping[Key, Fields]) -> list[ValueChange]:
    """Once all else is what it shall be, so that nothing needs them any more."""
    changes = []
    for thing in reversed(absent):
        before = now.get(thing.key)
        if before is not None:
            with below(thing.path):
                ENDS[thing.key[0]](Applying(actor, thing.key, before, thing.fields))
            changes.append(ValueChange(thing.path, thing.key[-1], None))
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
def _named(prefix: str) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        told = {f"{prefix}{path}": words for path, words in error.message_dict.items()}
        raise ValidationError(told) from error


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
