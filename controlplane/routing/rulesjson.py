"""Rules as JSON: read strictly, with every error at its field; written without what is default."""

from collections.abc import Iterable
from typing import Any

import msgspec
from django.core.exceptions import ValidationError

from controlplane.core.api.shapes import NUL, complaint
from controlplane.kernel.ids import public_id
from controlplane.kernel.rules import RULES_MAX, TENANTS, RouteRule
from controlplane.routing.checks import ID_HEX

FIELD = "rules"


def read_rules(value: object) -> tuple[RouteRule, ...]:
    """The rules of a version; raises ValidationError, by field: `rules[3].steps[0].queue_s`."""
    if not isinstance(value, list):
        raise ValidationError({FIELD: "Must be a list of rules."})
    if len(value) > RULES_MAX:
        raise ValidationError({FIELD: f"At most {RULES_MAX} rules."})
    if NUL in msgspec.json.encode(value):
        raise ValidationError({FIELD: "Must not contain the NUL character."})
    rules: list[RouteRule] = []
    errors: dict[str, list[str]] = {}
    for place, each in enumerate(value):
        try:
            rules.append(_read_rule(each))
        except msgspec.ValidationError as error:
            path, told = complaint(str(error))
            errors[f"{FIELD}[{place}]{path}"] = [told]
    if errors:
        raise ValidationError(errors)
    return tuple(rules)


def read_rules_text(text: str) -> object:
    """JSON as someone typed it; raises ValidationError with the place of a slip."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValidationError({FIELD: f"Invalid JSON: {error}."}) from error


def write_rules(rules: Iterable[RouteRule]) -> list[dict[str, Any]]:
    """What is stored and shown; `read_rules` restores it."""
    return [_plain(rule) for rule in rules]


def versioned(rules: Iterable[RouteRule], version: int) -> tuple[RouteRule, ...]:
    """The rules as gateways have them, so that their labels are those that requests are kept by."""
    return tuple(msgspec.structs.replace(rule, version=version) for rule in rules)


def _read_rule(value: object) -> RouteRule:
    if isinstance(value, dict) and "version" in value:
        raise msgspec.ValidationError("Object contains unknown field `version`")
    return msgspec.convert(value, RouteRule)


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        pairs = ((field, getattr(value, field.name)) for field in fields)
        plain = {
            field.name: _tenants(field.name, each) if field.name in TENANTS else _plain(each)
            for field, each in pairs
            if each != field.default
        }
        return {name: each for name, each in plain.items() if each != {}}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value


def _tenants(name: str, ids: Iterable[str]) -> list[str]:
    shown = (public_id(TENANTS[name], one) if ID_HEX.fullmatch(one) else one for one in ids)
    return sorted(shown)
