"""A document as a flat list of things with plain fields in one canonical form, and back.

Two values are equal exactly when they mean the same: prices as `0.15`, never `0.150`; rules and
bodies without what is default.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import msgspec
from django.core.exceptions import ValidationError
from msgspec import UNSET

from controlplane.blueprint.document import FORM, BudgetSpec, Document, DraftsSpec, PriceSpec
from controlplane.core.api.shapes import read_shape
from controlplane.core.permissions import Role
from controlplane.kernel.money import micro_from_usd, nano_from_usd, usd_from_micro, usd_text
from controlplane.kernel.objectives.burn import RULE_NAMES
from controlplane.kernel.objectives.counting import IndicatorPart
from controlplane.kernel.prompts import PromptBody
from controlplane.routing.rulesjson import read_rules, write_rules
from controlplane.tenants.services import clean_policies

POOL, MODEL, ORGANIZATION = "pool", "model", "organization"
PROJECT, TEMPLATE, ROUTING = "project", "template", "routing"
CONNECTION, STAGE, OBJECTIVE, MEMBER = "connection", "stage", "objective", "member"
# In the order in which they are made, and against it taken away.
KINDS = (
    POOL, MODEL, CONNECTION, ORGANIZATION, MEMBER, PROJECT, TEMPLATE, STAGE, OBJECTIVE, ROUTING,
)  # fmt: skip
# The organization of the installation's own objectives: no tenant has this name.
INSTALLATION = ""
ABSENT = "absent"
# What a thing is called by, where that is not `name`.
NAMED_BY = {STAGE: "stage", MEMBER: "email"}
_PARTS = ("name", "stage", "email", "projects", "templates", "members", "objectives")
PRICED = ("input", "cached", "output")
# Fields of limits and of budgets: of all requests, of each end user's, and by the model's name.
LIMITS = ("limits", "user_limits", "model_limits")
BUDGETS = ("budget", "user_budget", "model_budgets")
# What a project decides about its requests: the document's names, and the table's.
SETTINGS = {"safety": "safety_mode", "content": "allow_content_logging"} | {
    name: name for name in ("strict", "labels", "cache_minutes", "cache_shared", "policies")
}
_USD = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
Key = tuple[str, ...]
Fields = dict[str, Any]


class Thing(NamedTuple):
    """One thing that is configured: kind and names, its fields, and its path in the document; as a
    `draft` it is not to be put in force.
    """

    key: Key
    fields: Fields
    path: str
    draft: bool = False

    @property
    def absent(self) -> bool:
        return ABSENT in self.fields


def things_of(document: Document) -> list[Thing]:
    """All that it says; raises ValidationError by path."""
    found = [
        *_each(document.pools, (POOL,), "pools"),
        *_each(document.models, (MODEL,), "models"),
        *_each(document.connections, (CONNECTION,), "connections"),
        *_each(document.stages, (STAGE,), "stages"),
        *_each(document.objectives, (OBJECTIVE, INSTALLATION), "objectives"),
    ]
    for place, one in enumerate(document.organizations):
        path = f"organizations[{place}]"
        found.append(_thing((ORGANIZATION, one.name), one, path))
        found += _each(one.projects, (PROJECT, one.name), f"{path}.projects")
        found += _each(one.templates, (TEMPLATE, one.name), f"{path}.templates")
        found += _each(one.objectives, (OBJECTIVE, one.name), f"{path}.objectives")
        # Owners first, so that one can follow another.
        members = _each(one.members, (MEMBER, one.name), f"{path}.members")
        found += sorted(members, key=lambda member: member.fields.get("role") != Role.OWNER)
    if document.routing is not UNSET:
        found.append(_thing((ROUTING,), document.routing, "routing"))
    if document.drafts is not UNSET:
        found += (thing._replace(draft=True) for thing in _drafts(document.drafts))
    return found


def _drafts(drafts: DraftsSpec) -> Iterator[Thing]:
    yield from _each(drafts.models, (MODEL,), "drafts.models")
    yield from _each(drafts.organizations, (ORGANIZATION,), "drafts.organizations")
    for place, one in enumerate(drafts.organizations):
        path = f"drafts.organizations[{place}].projects"
        yield from _each(one.projects, (PROJECT, one.name), path)


def document_of(things: Mapping[Key, Fields]) -> dict[str, Any]:
    """The plain document that says all of these."""
    found: dict[str, Any] = {"sluice": FORM}
    for section, kind in (("pools", POOL), ("models", MODEL), ("connections", CONNECTION)):
        found[section] = _named(things, (kind,))
    if (ROUTING,) in things:
        found["routing"] = things[(ROUTING,)]
    found["stages"] = _named(things, (STAGE,))
    found["objectives"] = _named(things, (OBJECTIVE, INSTALLATION))
    found["organizations"] = [
        {
            "name": name,
            **fields,
            "members": _named(things, (MEMBER, name)),
            "projects": _named(things, (PROJECT, name)),
            "templates": _named(things, (TEMPLATE, name)),
            "objectives": _named(things, (OBJECTIVE, name)),
        }
        for (kind, *names), fields in things.items()
        if kind == ORGANIZATION
        for name in names
    ]
    return found


def canonical(fields: Mapping[str, Any]) -> Fields:
    """The fields in their one form; raises ValidationError by field."""
    return {name: _FORMS.get(name, lambda same: same)(value) for name, value in fields.items()}


def _each(specs: Sequence[msgspec.Struct], of: Key, path: str) -> list[Thing]:
    label = NAMED_BY.get(of[0], "name")
    names = [str(getattr(spec, label)) for spec in specs]
    if of[0] == MEMBER:
        names = [name.strip().lower() for name in names]
    return [
        _thing((*of, name), spec, f"{path}[{place}]")
        for place, (name, spec) in enumerate(zip(names, specs, strict=True))
    ]


def _thing(key: Key, spec: msgspec.Struct, path: str) -> Thing:
    fields = msgspec.to_builtins(spec)
    # An objective and a stage have an address of their own.
    own = _PARTS if key[0] == MEMBER else tuple(name for name in _PARTS if name != "email")
    for name in own:
        fields.pop(name, None)
    with below(path):
        if fields.get(ABSENT) and len(fields) > 1:
            told = f"Must be left out where {ABSENT!r} is true."
            raise ValidationError({name: told for name in fields if name != ABSENT})
        return Thing(key, canonical(fields), path)


@contextmanager
def below(path: str) -> Iterator[None]:
    """Puts the fields of a ValidationError under a path."""
    try:
        yield
    except ValidationError as error:
        told = {f"{path}.{field}": words for field, words in error.message_dict.items()}
        raise ValidationError(told) from error


def check_once(things: Iterable[Thing]) -> None:
    """Raises ValidationError where two say something of the same thing."""
    seen: set[tuple[bool, Key]] = set()
    for thing in things:
        if thing.key[0] == ORGANIZATION and not thing.fields:
            # Around what another document says of other projects of it.
            continue
        if (thing.draft, thing.key) in seen:
            told = f"There is another {thing.key[0]} {thing.key[-1]!r}."
            raise ValidationError({f"{thing.path}.{NAMED_BY.get(thing.key[0], 'name')}": told})
        seen.add((thing.draft, thing.key))


def _named(things: Mapping[Key, Fields], of: Key) -> list[Fields]:
    label = NAMED_BY.get(of[0], "name")
    return [{label: key[-1], **fields} for key, fields in things.items() if key[:-1] == of]


def _price(value: Fields, field: str = "price") -> Fields:
    return _unusual({**value, **_rates(value, field)}, PriceSpec)


def _rates(value: Fields, field: str) -> Fields:
    return {name: _rate(value[name], field) for name in PRICED}


def _rate(value: str | int | float, field: str) -> str:
    try:
        return usd_from_micro(micro_from_usd(_usd(value)))
    except ValueError as error:
        raise ValidationError({field: f"{error}."}) from error


def _card_hour(value: str | int | float) -> str:
    return _rate(value, "card_hour_usd")


def _purchase(value: Fields | None) -> Fields | None:
    return None if value is None else _rates(value, "purchase")


def _of_models(form: Callable[[Any, str], Fields | None], field: str) -> Callable[[Any], Fields]:
    """Fields by the name of the model; what says nothing is not there."""

    def made(value: Mapping[str, Fields]) -> Fields:
        found = {model: form(value[model], f"{field}.{model}") for model in sorted(value)}
        return {model: fields for model, fields in found.items() if fields}

    return made


def _usd(value: str | int | float) -> str:
    text = str(value)
    if not _USD.fullmatch(text):
        raise ValueError(f"{text} is not an amount in US dollars")
    return text


def _budget(value: Fields | None, field: str) -> Fields | None:
    if value is None:
        return None
    try:
        made = {**value, "usd": usd_plain(nano_from_usd(_usd(value["usd"])))}
    except ValueError as error:
        raise ValidationError({f"{field}.usd": f"{error}."}) from error
    if alerts := value.get("alerts"):
        made["alerts"] = sorted(alerts)
    return _unusual(made, BudgetSpec)


def _unusual(fields: Fields, shape: type[msgspec.Struct]) -> Fields:
    """Without what is default, however it was written."""
    usual = {field.name: field.default for field in msgspec.structs.fields(shape)}
    return {name: value for name, value in fields.items() if value not in (usual[name], [])}


def usd_plain(nano: int) -> str:
    """Dollars with two decimals, or as many as they have."""
    whole, _, digits = usd_text(nano).partition(".")
    return f"{whole}.{digits.rstrip('0').ljust(2, '0')}"


def _limits(value: Fields | None, _: str = "") -> Fields | None:
    kept = {name: limit for name, limit in (value or {}).items() if limit is not None}
    return kept or None


def _alert_rules(value: list[str]) -> list[str]:
    """In their own order; those that are unknown last, to be refused."""
    return sorted(value, key=lambda name: (*RULE_NAMES, name).index(name))


def _objective_parts(value: Any) -> Any:
    return msgspec.to_builtins(read_shape(value, list[IndicatorPart], field="parts"))


def _body(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(read_shape(value, PromptBody, field="body")))


def _rules(value: Any) -> Any:
    return write_rules(read_rules(value))


_FORMS: dict[str, Callable[[Any], Any]] = {
    "price": _price, "prices": _of_models(_price, "prices"), "purchase": _purchase,
    "limits": _limits, "user_limits": _limits, "model_limits": _of_models(_limits, LIMITS[2]),
    "budget": partial(_budget, field=BUDGETS[0]), "user_budget": partial(_budget, field=BUDGETS[1]),
    "model_budgets": _of_models(_budget, BUDGETS[2]),
    "alert_rules": _alert_rules, "body": _body, "policies": clean_policies, "rules": _rules,
    "card_hour_usd": _card_hour, "parts": _objective_parts,
}  # fmt: skip
