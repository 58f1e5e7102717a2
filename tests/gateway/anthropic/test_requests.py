"""Bodies of messages: what becomes of each field, and how wrong ones are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controlplane.gateway.anthropic.messages import parse, parse_count
from controlplane.gateway.ask import Ask, StoredParts, ToolUse, Turn
from controlplane.gateway.refusal import Refusal

HELLO = [{"role": "user", "content": "Hello"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FIND = {"name": "find", "description": "Finds.", "input_schema": SCHEMA}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "find", "input": {"city": "Rome"}}
CACHE = {"cache_control": {"type": "ephemeral"}}


def body_of(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 9, "messages": HELLO, **fields}).encode()


def asked(**fields: Any) -> Ask:
    return parse(body_of(**fields))


def refused(**fields: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        asked(**fields)
    assert caught.value.status == 400
    assert caught.value.param and f"'{caught.value.param}'" in caught.value.message
    return caught.value


def result(**fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "toolu_1", **fields}


def after_call(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    """A talk whose last message answers a call."""
    return [*HELLO, {"role": "assistant", "content": [CALL]}, {"role": "user", "content": blocks}]


def test_the_fields_of_a_plain_request() -> None:
    ask = asked(
        system="Be brief.",
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        stop_sequences=["\n\n", "END"],
        stream=True,
        metadata={"user_id": "u"},
    )
    assert ask.turns == (Turn("system", "Be brief."), Turn("user", "Hello"))
    assert (ask.stream, ask.output_tokens, ask.caps_output) == (True, 9, True)
    sampling = ask.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 40)
    assert ask.stop == ("\n\n", "END")
    assert (ask.ignored, ask.passed, ask.tools, sampling.grammar) == ((), {}, (), None)
    assert (ask.user, ask.labels) == ("u", {})


def test_blocks_become_turns() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a", **CACHE}, text("b")]},
        {"role": "system", "content": [text("Mind the time.")]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                text("I look."),
                CALL,
            ],
        },
        {"role": "user", "content": [result(content="sun", **CACHE), text("and?")]},
    ]
    ask = asked(messages=messages, system=[text("x"), {**text("y"), **CACHE}])
    assert ask.turns == (
        Turn("system", "x\ny"),
        Turn("user", "a\nb"),
        Turn("system", "Mind the time."),
        Turn("assistant", "I look.", (ToolUse("toolu_1", "find", {"city": "Rome"}),), None, "Hm."),
        Turn("tool", "sun", call_id="toolu_1"),
        Turn("user", "and?"),
    )


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, ""),
        ({"content": "x"}, "x"),
        ({"content": [text("x"), text("y")], "is_error": False}, "x\ny"),
        ({"content": "no such city", "is_error": True}, "Error: no such city"),
    ],
)
def test_results_of_tools(fields: dict[str, Any], said: str) -> None:
    ask = asked(messages=after_call(result(**fields)))
    assert ask.turns[-1] == Turn("tool", said, call_id="toolu_1")


def test_a_block_that_tells_a_version_parts_no_prompts() -> None:
    version = text("x-anthropic-billing-header: cc_version=1.2.3.abc;")
    assert asked(system=[version, text("Be brief.")]).turns[0] == Turn("system", "Be brief.")


def test_tools_and_their_choice() -> None:
    other = {"type": "custom", "name": "stop", "input_schema": {"type": "object"}}
    ask = asked(tools=[FIND, other], tool_choice={"type": "tool", "name": "find"})
    shown = {"name": "find", "description": "Finds.", "parameters": SCHEMA}
    assert ask.tools[0] == {"type": "function", "function": shown}
    assert len(ask.tools) == 2 and ask.grammar_field == "tools"
    assert ask.passed["tool_choice"] == {"type": "function", "function": {"name": "find"}}
    grammar = ask.sampling.grammar
    assert grammar is not None and "find" in grammar.source and "stop" not in grammar.source


@pytest.mark.parametrize(
    ("choice", "passed"), [(None, "auto"), ("auto", "auto"), ("any", "required"), ("none", "none")]
)
def test_choices_in_words(choice: str | None, passed: str) -> None:
    fields = {} if choice is None else {"tool_choice": {"type": choice}}
    ask = asked(tools=[FIND], **fields)
    assert ask.passed["tool_choice"] == passed
    assert bool(ask.tools) is (choice != "none") and ask.passed["parallel_tool_calls"] is True


def test_one_call_at_a_time() -> None:
    one = asked(tools=[FIND], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert one.passed["parallel_tool_calls"] is False
    assert one.sampling.grammar != asked(tools=[FIND]).sampling.grammar


def test_tools_of_the_provider_are_ignored_by_name() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    ask = asked(tools=[search, {"type": "bash_20250124", "name": "bash"}, FIND])
    assert ask.ignored == ("tools[0]", "tools[1]") and len(ask.tools) == 1
    assert asked(tools=[search]).passed == {}
    assert asked(tools=[]).tools == ()


def test_a_schema_is_followed_as_far_as_it_can_be_unless_it_is_strict() -> None:
    inner = {"type": "string", "pattern": "^(?=a)", "description": "A place."}
    names = {"type": "object", "propertyNames": {"minLength": 1}, "additionalProperties": inner}
    schema = {
        "type": "object",
        "properties": {"description": {"oneOf": [inner, names]}, "list": {"items": inner}},
    }
    ask = asked(tools=[{"name": "f", "input_schema": schema}])
    assert ask.tools[0]["function"]["parameters"] == schema
    grammar = ask.sampling.grammar
    assert grammar is not None
    rule = json.loads(grammar.source.partition("%json ")[2].partition("\n")[0])
    followed = {"type": "object", "additionalProperties": {"type": "string"}}
    assert rule["properties"] == {
        "description": {"anyOf": [{"type": "string"}, followed]},
        "list": {"items": {"type": "string"}},
    }
    strict = refused(tools=[{"name": "f", "input_schema": schema, "strict": True}])
    assert strict.param and strict.param.endswith(".propertyNames")


def test_a_format_is_a_grammar() -> None:
    wanted = {"type": "json_schema", "schema": SCHEMA}
    ask = asked(output_config={"effort": "high", "format": wanted})
    assert ask.sampling.grammar is not None and ask.sampling.grammar.kind == "json_schema"
    assert ask.grammar_field == "output_config.format.schema"
    assert ask.passed["response_format"]["json_schema"]["schema"] == SCHEMA
    assert (ask.ignored, ask.effort, ask.passed["reasoning_effort"]) == ((), "high", "high")
    both = asked(tools=[FIND], output_config={"format": wanted})
    assert both.sampling.grammar is not None and "content" in both.sampling.grammar.source


def test_what_changes_nothing_is_named() -> None:
    ask = asked(
        thinking={"type": "adaptive", "display": "omitted"},
        context_management={"edits": []},
        service_tier="auto",
        container=None,
        mcp_servers=[{"type": "url"}],
        betas=["x"],
        **CACHE,
    )
    named = {"betas", "cache_control", "context_management", "mcp_servers", "service_tier"}
    assert set(ask.ignored) == named
    assert ask.unknown == "betas"


def test_thinking_is_an_effort() -> None:
    assert asked(thinking={"type": "disabled"}).effort == "none"
    assert asked(thinking={"type": "enabled", "budget_tokens": 1024}).effort == "medium"
    most = asked(thinking={"type": "adaptive"}, output_config={"effort": "max"})
    assert (most.effort, most.effort_field) == ("xhigh", "thinking")
    assert asked().effort is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens"),
        ({"temperature": 1.5}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [*HELLO, {"role": "assistant", "content": "So"}]}, "messages[1].role"),
        ({"messages": [{"role": "user", "content": [CALL]}]}, "messages[0].content[0]"),
        (
            {"messages": [{"role": "assistant", "content": [result()]}, *HELLO]},
            "messages[0].content[0]",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]},
            "messages[0].content[0].type",
        ),
        (
            {"messages": after_call(result(content=[{"type": "document"}]))},
            "messages[2].content[0].content[0].type",
        ),
        (
            {"messages": [{"role": "user", "content": [result()]}]},
            "messages[0].content[0].tool_use_id",
        ),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"system": [{"type": "image"}]}, "system[0].type"),
        ({"thinking": {"type": "on"}}, "thinking.type"),
        ({"output_config": {"effort": "extreme"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
        ({"tools": [FIND, FIND]}, "tools[1].name"),
        (
            {"tools": [{"name": "a", "input_schema": {"type": "array"}}]},
            "tools[0].input_schema.type",
        ),
        ({"tools": [FIND], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
        ({"tools": [FIND], "tool_choice": {"type": "maybe"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ],
)
def test_wrong_values_are_named(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields).param == param


def test_a_count_needs_no_bound_and_may_end_with_an_answer() -> None:
    messages = [*HELLO, {"role": "assistant", "content": "So"}]
    ask = parse_count(json.dumps({"model": "m", "messages": messages}).encode())
    assert [turn.role for turn in ask.turns] == ["user", "assistant"]
    with pytest.raises(Refusal) as caught:
        parse(json.dumps({"model": "m", "messages": HELLO}).encode())
    assert caught.value.param == "max_tokens"


def test_stored_tools_stand_behind_its_own_and_may_be_forced() -> None:
    named = {"stored_tools": [{"id": "weather", "version": 2}]}
    stub = asked(tools=[FIND], **named, tool_choice={"type": "tool", "name": "weather"})
    assert [(one.id, one.version) for one in stub.stored_tools] == [("weather", 2)]
    assert stub.again is not None
    stored = {"name": "weather", "description": "Tells.", "parameters": SCHEMA, "strict": True}
    whole = stub.again(StoredParts({}, (stored,)))
    assert [tool["function"]["name"] for tool in whole.tools] == ["find", "weather"]
    assert whole.output_tokens == 9 and whole.calls is not None and whole.calls.must_call
    with pytest.raises(Refusal) as twice:
        stub.again(StoredParts({}, ({"name": "find"},)))
    assert twice.value.param == "tools[1].name"
    count = parse_count(json.dumps({"model": "m", "messages": HELLO, **named}).encode())
    assert count.again is not None
    assert count.again(StoredParts({}, ({"name": "now"},))).tools[0]["function"]["name"] == "now"
