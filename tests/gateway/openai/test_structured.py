"""`response_format`, `structured_outputs` and `tools`: what they become, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controlplane.gateway.openai.structured import DEPTH_MAX, UNSUPPORTED
from controlplane.gateway.refusal import Refusal
from inference.contract.grammar import GRAMMAR_BYTES_MAX, Grammar
from tests.gateway.openai.test_parameters import called, check_refusal, parse_chat, parse_completion

SCHEMA = {
    "type": "object",
    "properties": {"b": {"type": "integer"}, "a": {}},
    "required": ["b"],
    "additionalProperties": False,
}


def json_schema(schema: object, **changes: object) -> dict[str, Any]:
    """A response format."""
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, **changes}}


def tool(name: str = "f", **function: object) -> dict[str, Any]:
    """A function on offer."""
    return {"type": "function", "function": {"name": name, **function}}


def deep(levels: int) -> dict[str, Any]:
    """A schema in a schema in a schema."""
    return {"items": deep(levels - 1)} if levels else {}


@pytest.mark.parametrize(
    ("fields", "grammar", "field"),
    [
        ({}, None, ""),
        ({"response_format": {"type": "text"}}, None, ""),
        ({"response_format": {"type": "json_object"}}, Grammar(kind="json_object"),
         "response_format"),
        ({"response_format": json_schema(SCHEMA, strict=True, description="d")},
         Grammar(kind="json_schema", source=json.dumps(SCHEMA, separators=(",", ":"))),
         "response_format.json_schema.schema"),
        ({"structured_outputs": {"json": SCHEMA}},
         Grammar(kind="json_schema", source=json.dumps(SCHEMA, separators=(",", ":"))),
         "structured_outputs.json"),
        ({"structured_outputs": {"json": {}}}, Grammar(kind="json_schema", source="{}"),
         "structured_outputs.json"),
        ({"structured_outputs": {"json_object": True}}, Grammar(kind="json_object"),
         "structured_outputs.json_object"),
        ({"structured_outputs": {"regex": "a+"}}, Grammar(kind="regex", source="a+"),
         "structured_outputs.regex"),
        ({"structured_outputs": {"grammar": "start: A"}}, Grammar(kind="lark", source="start: A"),
         "structured_outputs.grammar"),
        ({"structured_outputs": {"choice": ["é", '"']}},
         Grammar(kind="lark", source='start: "é" | "\\""'), "structured_outputs.choice"),
    ],
)  # fmt: skip
def test_what_an_answer_has_to_match(
    fields: dict[str, Any], grammar: Grammar | None, field: str
) -> None:
    parsers = [parse_chat] if "response_format" in fields else [parse_chat, parse_completion]
    for parse in parsers:
        ask = parse(**fields)
        assert (ask.sampling.grammar, ask.grammar_field) == (grammar, field)
        assert ask.passed == fields


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": json_schema([])}, "response_format.json_schema.schema"),
        ({"response_format": json_schema(None)}, "response_format.json_schema.schema"),
        ({"response_format": json_schema({}, name="a b")}, "response_format.json_schema.name"),
        ({"response_format": json_schema({}, strict="yes")}, "response_format.json_schema.strict"),
        (
            {"response_format": json_schema({"properties": {"a": {"not": {}}}})},
            "response_format.json_schema.schema.properties.a.not",
        ),
        (
            {"response_format": json_schema({"anyOf": [{}, {"uniqueItems": True}]})},
            "response_format.json_schema.schema.anyOf[1].uniqueItems",
        ),
        (
            {"response_format": json_schema({"$defs": {"a": {"x-guidance": {}}}})},
            "response_format.json_schema.schema.$defs.a.x-guidance",
        ),
        (
            {"response_format": json_schema({"items": {"$ref": "http://a/b"}})},
            "response_format.json_schema.schema.items.$ref",
        ),
        (
            {"response_format": json_schema({"properties": []})},
            "response_format.json_schema.schema.properties",
        ),
        (
            {"response_format": json_schema({"additionalProperties": 5})},
            "response_format.json_schema.schema.additionalProperties",
        ),
        (
            {"response_format": json_schema(deep(DEPTH_MAX))},
            "response_format.json_schema.schema" + ".items" * DEPTH_MAX,
        ),
        (
            {"response_format": json_schema({"description": "x" * GRAMMAR_BYTES_MAX})},
            "response_format.json_schema.schema",
        ),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"regex": ""}}, "structured_outputs.regex"),
        ({"structured_outputs": {"json": {"if": {}}}}, "structured_outputs.json.if"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs"),
        ({"guided_regex": "a+", "structured_outputs": {"json": {}}}, "structured_outputs"),
        ({"guided_choice": "a"}, "structured_outputs.choice"),
        ({"structured_outputs": {"regex": "é" * GRAMMAR_BYTES_MAX}}, "structured_outputs.regex"),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
            "structured_outputs",
        ),
        ({"tools": [tool("a b")]}, "tools[0].function.name"),
        ({"tools": [tool("line\n")]}, "tools[0].function.name"),
        ({"tools": [tool("x" * 65)]}, "tools[0].function.name"),
        ({"tools": [tool("f"), tool("f")]}, "tools[1].function.name"),
        ({"tools": [{"type": "search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [tool(parameters={"type": "array"})]}, "tools[0].function.parameters.type"),
        ({"tools": [tool(parameters={"not": {}})]}, "tools[0].function.parameters.not"),
        ({"tools": [tool(f"f{n}") for n in range(129)]}, "tools"),
        ({"tools": [tool(parameters={"title": "x" * GRAMMAR_BYTES_MAX})]}, "tools"),
        ({"tools": [tool()], "tool_choice": "any"}, "tool_choice"),
        (
            {"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice.function.name",
        ),
        ({"tools": [tool()], "parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"tools": [tool()], "structured_outputs": {"regex": "a"}}, "structured_outputs.regex"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
    ],
)
def test_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse_chat(**fields)
    assert caught.value.param == param
    assert f"'{param}'" in caught.value.message
    if "$" not in param:
        check_refusal(caught.value, param.split(".")[0].split("[")[0])


@pytest.mark.parametrize("field", ["tools", "tool_choice", "response_format"])
def test_a_text_completion_does_not_offer_them(field: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse_completion(**{field: []})
    assert (caught.value.param, caught.value.code) == (field, "unsupported_parameter")


def test_tools_as_templates_read_them() -> None:
    parameters = {"type": "object", "properties": {"z": {}, "a": {}}}
    ask = parse_chat(tools=[tool(description="d", parameters=parameters, strict=True), tool("g")])
    first, second = ask.tools
    assert first == {
        "type": "function",
        "function": {"name": "f", "description": "d", "parameters": parameters},
    }
    assert second["function"]["parameters"] == {"type": "object", "properties": {}}
    assert ask.grammar_field == "tools" and ask.speaks_of_tools
    assert parse_chat(tools=[tool()], tool_choice="none").tools == ()


def test_a_conversation_with_calls() -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "refusal": None, "tool_calls": [called("f", "")]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "5"}]},
    ]
    _, said, answered = parse_chat(messages=messages).turns
    assert (said.content, answered.content, answered.call_id) == ("", "5", "call_1")
    assert [(use.id, use.name, use.arguments) for use in said.calls] == [("call_1", "f", {})]


def test_the_page_names_every_keyword_that_is_refused() -> None:
    page = (Path(__file__).parents[3] / "docs" / "structured-output.md").read_text()
    told = {word for word in UNSUPPORTED if f"`{word}`" in page}
    assert {word for word in UNSUPPORTED if word[0] != "$"} - told == {"x-guidance"}


LISTED: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
CLOSED: dict[str, Any] = {**LISTED, "additionalProperties": False}
REFERENCE = {"$ref": "#/$defs/d"}


@pytest.mark.parametrize(
    ("schema", "made"),
    [
        (LISTED, CLOSED),
        ({"type": "object"}, {"type": "object"}),
        ({**LISTED, "additionalProperties": True}, {**LISTED, "additionalProperties": True}),
        ({**LISTED, "additionalProperties": LISTED}, {**LISTED, "additionalProperties": CLOSED}),
        ({"items": LISTED}, {"items": CLOSED}),
        ({"properties": {"b": LISTED}},
         {"properties": {"b": CLOSED}, "additionalProperties": False}),
        ({"anyOf": [LISTED, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        ({"allOf": [LISTED]}, {"allOf": [CLOSED]}),
        ({"$defs": {"d": LISTED}, "anyOf": [REFERENCE, {"type": "null"}]},
         {"$defs": {"d": CLOSED}, "anyOf": [REFERENCE, {"type": "null"}]}),
        # What several parts say of one object stays open; so does what one of them refers to.
        ({"allOf": [LISTED, LISTED]}, {"allOf": [LISTED, LISTED]}),
        ({**LISTED, "anyOf": [{"required": ["a"]}]}, {**LISTED, "anyOf": [{"required": ["a"]}]}),
        ({"allOf": [{"anyOf": [LISTED]}, LISTED]}, {"allOf": [{"anyOf": [LISTED]}, LISTED]}),
        ({"$defs": {"d": LISTED}, "allOf": [REFERENCE, LISTED]},
         {"$defs": {"d": LISTED}, "allOf": [REFERENCE, LISTED]}),
        ({"$defs": {"d": LISTED, "e": {**REFERENCE, **LISTED}}},
         {"$defs": {"d": LISTED, "e": {**REFERENCE, **LISTED}}}),
    ],
)  # fmt: skip
def test_objects_have_the_properties_that_a_schema_lists(
    schema: dict[str, Any], made: dict[str, Any]
) -> None:
    ask = parse_chat(response_format=json_schema(schema))
    assert ask.sampling.grammar is not None
    assert json.loads(ask.sampling.grammar.source) == made
    assert ask.passed["response_format"]["json_schema"]["schema"] == schema
