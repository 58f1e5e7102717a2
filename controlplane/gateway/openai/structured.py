"""What an answer has to match: `response_format`, and `structured_outputs` as vLLM names it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from controlplane.gateway.openai.schemas import check_schema
from controlplane.gateway.openai.wording import NAME_PATTERN
from controlplane.gateway.refusal import bad_field
from controlplane.gateway.toolform import choice_grammar
from inference.contract.grammar import GRAMMAR_BYTES_MAX, Grammar

CHOICES_MAX = 1024
SCHEMA_FIELD = "response_format.json_schema.schema"

SchemaName = Annotated[str, Meta(pattern=NAME_PATTERN)]
Source = Annotated[str, Meta(min_length=1)]


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
    return bounded("json_schema", msgspec.json.encode(schema).decode(), field)


def bounded(kind: str, source: str, field: str) -> WantedFormat:
    """A grammar within its bound; raises `Refusal` (400)."""
    if len(source.encode()) > GRAMMAR_BYTES_MAX:
        raise bad_field(field, f"'{field}' is larger than {GRAMMAR_BYTES_MAX} bytes.")
    return WantedFormat(Grammar(kind=kind, source=source), field)


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
