"""What clients send besides what is read: left out, named, and bounded; null is not sent."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from controlplane.gateway.ask import Ask, ToolUse, Turn
from controlplane.gateway.openai import chat, embeddings
from controlplane.gateway.openai.tolerant import IGNORED_MAX, PATH_CHARS_MAX
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.s1_admission.helpers.offload import LARGE_BYTES
from inference.contract.grammar import Grammar
from tests.gateway.openai.test_parameters import MESSAGES, called, parse_chat, parse_completion

# A message as an SDK's `model_dump()` writes it, and what else clients put into a history.
DUMPED: dict[str, Any] = {
    "content": "Good day.",
    "refusal": None,
    "role": "assistant",
    "annotations": [],
    "audio": None,
    "function_call": None,
    "tool_calls": None,
    "provider_specific_fields": {"refusal": None},
    "reasoning_content": None,
}
HARMLESS = {
    "store": False,
    "prompt_cache_retention": "24h",
    "verbosity": "low",
    "prediction": {"type": "content", "content": "x"},
    "web_search_options": {},
    "audio": {"voice": "a"},
    "guided_decoding_backend": "xgrammar",
    "length_penalty": 1.0,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
}
UNKNOWN = {
    "num_ctx": 4096,
    "keep_alive": "5m",
    "num_predict": -1,
    "unheard_of": {"a": [1]},
}


def parse_embedding(**fields: Any) -> Ask:
    return embeddings.parse(msgspec.json.encode({"model": "m", "input": "a", **fields}))


@pytest.mark.parametrize("parse", [parse_chat, parse_completion])
def test_documented_fields_without_effect_are_named_and_not_unknown(parse: Any) -> None:
    ask = parse(**HARMLESS, user="u", metadata={"a": "b"}, service_tier="flex")
    assert set(ask.ignored) == {*HARMLESS, "service_tier"}
    assert (ask.user, ask.labels) == ("u", {"a": "b"})
    assert parse(user="u", safety_identifier="s").user == "s"
    assert ask.unknown == ""


@pytest.mark.parametrize("parse", [parse_chat, parse_completion, parse_embedding])
def test_unknown_fields_are_named_and_the_first_of_them_told(parse: Any) -> None:
    ask = parse(**UNKNOWN)
    assert (ask.ignored, ask.unknown) == (tuple(UNKNOWN), "num_ctx")


def test_a_plain_request_ignores_nothing() -> None:
    ask = parse_chat(temperature=0.5, tools=None, prompt_cache_key="k")
    assert (ask.ignored, ask.unknown, ask.cache_key) == ((), "", "k")


def test_an_answer_comes_back_as_history() -> None:
    call = {**called("f", '{"a":1}'), "index": 0}
    ask = parse_chat(
        messages=[
            *MESSAGES,
            DUMPED,
            {**DUMPED, "content": None, "tool_calls": [call], "id": "msg_1"},
            {"role": "tool", "content": "done", "tool_call_id": "call_1", "cache_control": {}},
            {"role": "assistant", "content": None},
            {"role": "assistant", "tool_calls": []},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        ]
    )
    assert ask.turns[1:] == (
        Turn("assistant", "Good day."),
        Turn("assistant", "", (ToolUse("call_1", "f", {"a": 1}),)),
        Turn("tool", "done", (), "call_1"),
        Turn("assistant", ""),
        Turn("assistant", ""),
        Turn("assistant", "No."),
    )
    assert (ask.unknown, ask.ignored[0]) == ("", "messages[1].annotations")
    assert "messages[2].tool_calls[0].index" in ask.ignored


def test_fields_of_parts_and_of_options_are_named_where_they_are() -> None:
    part = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    ask = parse_chat(
        messages=[{"role": "user", "content": [part, part]}],
        stream=True,
        stream_options={"include_usage": None, "include_all": True, "more": 1},
    )
    assert ask.ignored == (
        "messages[0].content[0].cache_control",
        "messages[0].content[1].cache_control",
        "stream_options.include_all",
        "stream_options.more",
    )
    assert (ask.unknown, ask.include_usage) == ("stream_options.include_all", False)


def _nulled(value: Any) -> Any:
    """The value with a null beside everything that is there."""
    if isinstance(value, dict):
        return {
            **{f"null_{name}": None for name in value},
            **{n: _nulled(v) for n, v in value.items()},
        }
    return [_nulled(each) for each in value] if isinstance(value, list) else value


def test_null_is_not_sent_at_every_level() -> None:
    full: dict[str, Any] = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "assistant", "content": "b", "tool_calls": [called("f", "{}")]},
        ],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "response_format": {"type": "json_object"},
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    plain, nulled = parse_chat(**full), parse_chat(**_nulled(full))
    assert msgspec.structs.replace(nulled, bytes=plain.bytes) == plain
    fields: dict[str, Any] = {
        field.name: None for field in msgspec.structs.fields(chat.ChatRequest)
    }
    fields |= {"model": "m", "messages": MESSAGES}
    assert chat.parse(json.dumps(fields).encode()).turns == parse_chat().turns
    for parse in (parse_chat, parse_completion, parse_embedding):
        with pytest.raises(Refusal) as caught:
            parse(model=None)
        assert (caught.value.param, caught.value.code) == ("model", "missing_required_parameter")


def test_fields_of_other_servers_do_what_they_say() -> None:
    assert parse_completion(guided_regex="a+").sampling.grammar == Grammar(
        kind="regex", source="a+"
    )
    named = parse_chat(guided_json={"type": "object"}, structured_outputs=None)
    assert named.grammar_field == "structured_outputs.json"
    assert named.ignored == ()
    assert parse_chat(guided_choice=["a", "b"]).sampling.grammar is not None
    assert parse_chat(guided_grammar='start: "a"').sampling.grammar is not None
    assert parse_chat(modalities=["text"], add_generation_prompt=True, n=2, best_of=2).ignored == ()


def test_what_asks_for_no_tool_needs_none() -> None:
    none: list[dict[str, Any]] = [{"tools": []}, {"tool_choice": "none"}, {"tool_choice": "auto"}]
    for fields in none:
        ask = parse_chat(**fields, parallel_tool_calls=True)
        assert (ask.tools, ask.passed, ask.sampling.grammar) == ((), {}, None)


def test_a_loss_of_meaning_is_refused_by_name() -> None:
    for parse, field in ((parse_chat, "functions"), (parse_completion, "suffix")):
        with pytest.raises(Refusal) as caught:
            parse(**{field: "x", "unheard_of": 1})
        assert (caught.value.param, caught.value.code) == (field, "unsupported_parameter")
        assert parse(**{field: None}).ignored == ()


def test_names_are_bounded_and_fit_a_header() -> None:
    ask = parse_chat(**{f"x{number}": 1 for number in range(IGNORED_MAX + 9)})
    assert len(ask.ignored) == IGNORED_MAX
    odd = parse_chat(**{"a\r\nx: b, ü€" + "z" * 100: 1, "": 2})
    assert odd.ignored == (("a??x??b????" + "z" * 100)[:PATH_CHARS_MAX], "?")
    assert len(odd.unknown) == PATH_CHARS_MAX


def test_bounds_of_json_hold_beside_unknown_fields() -> None:
    head = b'{"model":"m","messages":[{"role":"user","content":"a"}],"x":'
    for tail, told in (
        (b'{"a":1,"a":2}}', "duplicated"),
        (b"[" * 40 + b"]" * 40 + b"}", "deeper"),
        (b"1,}", "not valid JSON"),
        (b"1e999}", "out of range"),
    ):
        with pytest.raises(Refusal) as caught:
            chat.parse(head + tail)
        assert told in caught.value.message
        large = b'"' + b"y" * LARGE_BYTES + b'","x2":'
        with pytest.raises(Refusal) as caught:
            chat.parse(head + large + tail)
        assert told in caught.value.message


def test_a_large_body_is_tidied_like_a_small_one() -> None:
    message = {"role": "user", "content": "a" * LARGE_BYTES, "cache_control": None, "more": 1}
    ask = parse_chat(messages=[message], store=True)
    assert (ask.ignored, ask.unknown) == (("messages[0].more", "store"), "messages[0].more")


def test_a_wrong_value_is_named_beside_unknown_fields() -> None:
    with pytest.raises(Refusal) as caught:
        parse_chat(unheard_of=1, seed=10**30)
    assert caught.value.param == "seed"


def test_a_server_is_asked_to_think_without_tools_too() -> None:
    kwargs = {"enable_thinking": False}
    ask = parse_chat(reasoning_effort="low", chat_template_kwargs=kwargs)
    assert ask.passed == {"chat_template_kwargs": kwargs, "reasoning_effort": "low"}
