"""What an answer has to match: `response_format`, and `structured_outputs` as vLLM names it; and
cheap checks of a JSON schema, so that what cannot be followed is named before a node sees it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from controlplane.gateway.openai.parse import NAME_PATTERN
from controlplane.gateway.refusal import bad_field
from controlplane.gateway.toolform import ANY_TEXT, WantedCalls, choice_grammar, json_rule
from inference.contract.grammar import GRAMMAR_BYTES_MAX, JSON_WHITESPACE, Grammar
from inference.text.decode import ChannelMarks, ThinkMarks

DEPTH_MAX = 24
# Keywords that would change what validates, and that no engine here can follow while it writes.
UNSUPPORTED = frozenset({
    "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef", "contains",
    "dependencies", "dependentRequired", "dependentSchemas", "else", "if", "maxContains",
    "minContains", "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
    "uniqueItems", "x-guidance",
})  # fmt: skip
# Where schemas stand inside a schema: as the value, in a list, or under names of one's own.
ONE = frozenset({"additionalItems", "additionalProperties", "items"})
LISTS = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
NAMED = frozenset({"$defs", "definitions", "patternProperties", "properties"})
DEFINED = (".$defs.", ".definitions.")
# What says which properties an object has.
DESCRIBING = ("$ref", "allOf", "anyOf", "oneOf", "patternProperties", "properties")
# What only describes, and what engines know few values of.
LOOSE = {"$comment", "$schema", "default", "description", "examples", "format", "pattern", "title"}
CHOICES_MAX = 1024
SCHEMA_FIELD = "response_format.json_schema.schema"
# Escapes of a regular expression, and what would end it in Lark without one.
_SLASHES = re.compile(r"\\.|/", re.DOTALL)

SchemaName = Annotated[str, Meta(pattern=NAME_PATTERN)]
Source = Annotated[str, Meta(min_length=1)]


def check_schema(schema: Mapping[str, Any], field: str) -> None:
    """Raises `Refusal` (400) that names the path of what is at fault; `field` is the schema's."""
    _check(schema, field, DEPTH_MAX)


def closed(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A checked schema whose objects have no properties but those that it lists, where it does not
    say whether they may: a model might add more until its output ends.

    Objects that several parts of it describe stay open: each would exclude what the others list.
    """
    made = msgspec.json.decode(msgspec.json.encode(schema))
    return made if _close(made, alone=True) else schema


def _close(schema: Any, *, alone: bool) -> bool:
    """False where one of several parts is a reference: what it refers to must stay open."""
    if not isinstance(schema, dict):
        return True
    parts = schema.get("allOf")
    together = len(parts) > 1 if isinstance(parts, list) else False
    alone = alone and not together and sum(word in schema for word in DESCRIBING) <= 1
    if alone and "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return (alone or "$ref" not in schema) and all(
        _close(inner, alone=alone or at.startswith(DEFINED)) for at, inner in _inner(schema, "")
    )


def followable(schema: Any) -> Any:
    """What of a schema every engine can follow: it lets through whatever validates, and more."""
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in UNSUPPORTED | LOOSE:
            continue
        if keyword in NAMED and isinstance(value, dict):
            value = {name: followable(each) for name, each in value.items()}
        elif keyword in LISTS | ONE:
            value = list(map(followable, value)) if isinstance(value, list) else followable(value)
        # Engines want to be shown that of these only one can match.
        made["anyOf" if keyword == "oneOf" else keyword] = value
    return made


def _check(schema: Any, path: str, depth: int) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise bad_field(path, f"'{path}' must be a JSON schema: an object, true or false.")
    if not depth:
        raise bad_field(path, f"'{path}' is nested deeper than {DEPTH_MAX} levels of its schema.")
    for keyword in schema:
        if keyword in UNSUPPORTED:
            at = f"{path}.{keyword}"
            raise bad_field(at, f"'{at}' is not supported in a schema.", "unsupported_parameter")
    reference = schema.get("$ref", "#")
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise bad_field(
            f"{path}.$ref", f"'{path}.$ref' must be a reference within the schema: '#…'."
        )
    for place, inner in _inner(schema, path):
        _check(inner, place, depth - 1)


def _inner(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for keyword, value in schema.items():
        at = f"{path}.{keyword}"
        if keyword in LISTS and isinstance(value, list):
            yield from ((f"{at}[{place}]", each) for place, each in enumerate(value))
        elif keyword in ONE:
            yield at, value
        elif keyword in NAMED:
            if not isinstance(value, dict):
                raise bad_field(at, f"'{at}' must be an object whose values are schemas.")
            yield from ((f"{at}.{name}", each) for name, each in value.items())


class NamedSchema(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A JSON schema. It is always enforced, so `strict` changes nothing."""

    name: SchemaName
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class TextFormat(msgspec.Struct, tag="text", tag_field="type", forbid_unknown_fields=True):
    """Anything."""


class JsonFormat(msgspec.Struct, tag="json_object", tag_field="type", forbid_unknown_fields=True):
    """Any JSON object."""


class SchemaFormat(msgspec.Struct, tag="json_schema", tag_field="type", forbid_unknown_fields=True):
    """JSON that validates."""

    json_schema: NamedSchema


ResponseFormat = TextFormat | JsonFormat | SchemaFormat


class StructuredOutputs(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One of: a schema, a regular expression, a list of texts, a Lark grammar, any JSON object."""

    json: dict[str, Any] | None = None
    regex: Source | None = None
    choice: Annotated[list[Source], Meta(min_length=1, max_length=CHOICES_MAX)] | None = None
    grammar: Source | None = None
    json_object: Literal[True] | None = None


class WantedFormat(msgspec.Struct, frozen=True):
    """A grammar, and what the client calls it."""

    grammar: Grammar
    field: str
    calls: WantedCalls | None = None


def wanted_format(
    response_format: ResponseFormat | None, structured: StructuredOutputs | None
) -> WantedFormat | None:
    """None for free text; raises `Refusal` (400)."""
    wanted = None if response_format is None else _of_format(response_format)
    if structured is None:
        return wanted
    if wanted is not None:
        message = "'structured_outputs' and 'response_format' are mutually exclusive; send one."
        raise bad_field("structured_outputs", message)
    return _of_structured(structured)


def schema_grammar(schema: Mapping[str, Any], field: str) -> WantedFormat:
    """A checked schema; raises `Refusal` (400)."""
    check_schema(schema, field)
    return bounded("json_schema", msgspec.json.encode(closed(schema)).decode(), field)


def bounded(kind: str, source: str, field: str) -> WantedFormat:
    """A grammar within its bound; raises `Refusal` (400)."""
    if len(source.encode()) > GRAMMAR_BYTES_MAX:
        raise bad_field(field, f"'{field}' is larger than {GRAMMAR_BYTES_MAX} bytes.")
    return WantedFormat(Grammar(kind=kind, source=source), field)


def after_thoughts(
    grammar: Grammar, field: str, marks: ThinkMarks | ChannelMarks, *, opened: bool, calls: bool
) -> WantedFormat:
    """The grammar behind thoughts, which are free; raises `Refusal` (400) where it gets too large.

    They must come where the prompt has `opened` them, else they may. One of `calls` has channels.
    """
    if isinstance(marks, ChannelMarks):
        begin, end = f"<[{marks.channel}]>", f'<[{marks.end}]> <[{marks.start}]> "assistant"'
        thoughts = f'({begin} "analysis" <[{marks.message}]> THOUGHT {end})*'
        thoughts += "" if calls else f' {begin} "final" <[{marks.message}]>'
    else:
        thoughts = f"THOUGHT <[{marks.closing}]>"
        if not opened:
            thoughts = f"(<[{marks.opening}]> {thoughts})?"
    match grammar.kind:
        case "regex":
            source = _SLASHES.sub(lambda found: found[0].rjust(2, "\\"), grammar.source)
            answer = f"/{source}/"
        case "lark":
            answer = f"%lark {{\n{grammar.source}\n}}"
        case _:
            schema = json.loads(grammar.source) if grammar.source else {"type": "object"}
            answer = json_rule(schema, JSON_WHITESPACE)
    source = f"start: {thoughts} answer\nTHOUGHT: {ANY_TEXT}\nanswer: {answer}"
    return bounded("lark", source, field)


def _of_format(response_format: ResponseFormat) -> WantedFormat | None:
    match response_format:
        case SchemaFormat(json_schema=named):
            return schema_grammar(named.schema, SCHEMA_FIELD)
        case JsonFormat():
            return WantedFormat(Grammar(kind="json_object"), "response_format")
    return None


def _of_structured(given: StructuredOutputs) -> WantedFormat:
    named = {name: value for name in given.__struct_fields__ if (value := getattr(given, name))}
    if given.json is not None:
        named["json"] = given.json
    if len(named) != 1:
        names = ", ".join(given.__struct_fields__)
        raise bad_field("structured_outputs", f"'structured_outputs' needs one of {names}.")
    ((name, value),) = named.items()
    field = f"structured_outputs.{name}"
    match name:
        case "json":
            return schema_grammar(value, field)
        case "json_object":
            return WantedFormat(Grammar(kind="json_object"), field)
        case "choice":
            return bounded("lark", choice_grammar(value), field)
    return bounded("lark" if name == "grammar" else name, value, field)
