"""Every parameter: what is accepted, what is refused, and that the refusal names it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controlplane.gateway.ask import Ask
from controlplane.gateway.openai import chat, completions, embeddings
from controlplane.gateway.refusal import Refusal

MESSAGES = [{"role": "user", "content": "a"}]
LOGPROBS = {"logprobs": True}


def called(name: str, arguments: str) -> dict[str, Any]:
    """A call in a message of the assistant."""
    function = {"name": name, "arguments": arguments}
    return {"id": "call_1", "type": "function", "function": function}


CALL = called("f", "{}")
ACCEPTED: dict[str, list[Any]] = {
    "temperature": [0, 2, 0.7, None],
    "top_p": [0.01, 1, None],
    "top_k": [-1, 0, 50, None],
    "min_p": [0, 1, None],
    "n": [1, 8, None],
    "seed": [-(2**63), 0, 2**63 - 1, None],
    "stop": ["x", [], ["a"] * 16, "é" * 256, None],
    "max_tokens": [1, 2**31, None],
    "frequency_penalty": [-2, 2, None],
    "presence_penalty": [-2, 2, None],
    "logit_bias": [{}, {"1": -100, "2": 100}, None],
    "user": ["", "u" * 512, None],
    "metadata": [{}, {"a": "b"}, None],
    "service_tier": ["auto", "default", "flex", None],
    "prompt_cache_key": ["", "k" * 512, None],
    "best_of": [1, None],
    "use_beam_search": [False, None],
    "stream": [True, False, None],
    "ignore_eos": [True, False, None],
    "min_tokens": [0, 5, None],
    "repetition_penalty": [0.01, 1, 1.3, 100, None],
    "stop_token_ids": [[], [0, 2**31 - 1], None],
}
REFUSED: dict[str, list[Any]] = {
    "temperature": [-0.1, 2.1, "1", True, [], 10**30],
    "top_p": [0, -1, 1.01, "1", {}],
    "top_k": [-2, 1.5, "5", 10**20],
    "min_p": [-0.1, 1.1, "0"],
    "n": [0, -1, 9, 1.5, "2", True],
    "seed": [2**63, -(2**63) - 1, 1.5, "7"],
    "stop": ["", ["a"] * 17, [""], ["x" * 257], 5, {"a": 1}],
    "max_tokens": [0, -1, 1.5, "5", 2**31 + 1, 10**30],
    "frequency_penalty": [-2.1, 2.1, "0"],
    "presence_penalty": [-2.1, 2.1, "0"],
    "logit_bias": [{"x": 1}, {"1": 101}, {"1": "a"}, [], {str(i): 1 for i in range(301)}],
    "user": ["u" * 513, 5, "a\0b"],
    "safety_identifier": ["s" * 513, 5],
    "metadata": [{"a": 1}, "a", {str(i): "" for i in range(17)}, {"n" * 65: ""}, {"a": "t" * 513}],
    "service_tier": [1],
    "prompt_cache_key": ["k" * 513, 5],
    "best_of": [0, 2, "1"],
    "use_beam_search": [True, "no"],
    "functions": [[], [{"name": "f"}]],
    "stream": ["true", 1],
    "model": ["", "m" * 257, 5, None],
    "stream_options": [[], "x"],
    "ignore_eos": [1, "true"],
    "min_tokens": [-1, 1.5, "5"],
    "repetition_penalty": [0, -1, 101, "1"],
    "stop_token_ids": [[-1], [2**31], ["a"], 5, [1] * 65],
}
CHAT_REFUSED: dict[str, list[Any]] = {
    "messages": [[], None, "hello", 5, {}],
    "max_completion_tokens": [0, "5"],
    "logprobs": [1, "true"],
    "top_logprobs": [1, -1, 21],
    "modalities": [["audio"], ["text", "audio"], "text"],
    "add_generation_prompt": [False],
    "continue_final_message": [True],
}
COMPLETION_REFUSED: dict[str, list[Any]] = {
    "prompt": [[], None, 5, ["a", [1]], [1, "a"], [-1], [2**31], [[]], ["a"] * 129],
    "logprobs": [-1, 21, True],
    "echo": [1, "yes"],
    "truncate_prompt_tokens": [-2, "5"],
    "best_of": [3, "2"],
    "suffix": ["x"],
    "tools": [[]],
    "response_format": [{"type": "text"}],
}


def cases(table: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    """One row per value."""
    return [(field, value) for field, values in table.items() for value in values]


def parse_chat(**fields: Any) -> Ask:
    """A chat request."""
    return chat.parse(msgspec.json.encode({"model": "m", "messages": MESSAGES, **fields}))


def parse_completion(**fields: Any) -> Ask:
    """A completion request."""
    return completions.parse(msgspec.json.encode({"model": "m", "prompt": "a", **fields}))


def check_refusal(refusal: Refusal, field: str) -> None:
    """400, naming the field in `param` and in words free of the decoder's jargon."""
    assert refusal.status == 400
    assert refusal.param is not None and refusal.param.split(".")[0].split("[")[0] == field
    assert field in refusal.message
    assert refusal.message.endswith(".") and "`" not in refusal.message
    assert "$" not in refusal.message and "Expected" not in refusal.message
    assert ("x-should-retry", "false") in refusal.headers


@pytest.mark.parametrize(("field", "value"), cases(ACCEPTED))
def test_accepted_in_both_operations(field: str, value: Any) -> None:
    assert parse_chat(**{field: value}).model == "m"
    assert parse_completion(**{field: value}).model == "m"


@pytest.mark.parametrize(("field", "value"), cases(REFUSED))
def test_refused_by_name_in_both_operations(field: str, value: Any) -> None:
    for parse in (parse_chat, parse_completion):
        with pytest.raises(Refusal) as caught:
            parse(**{field: value})
        check_refusal(caught.value, field)


@pytest.mark.parametrize(("field", "value"), cases(CHAT_REFUSED))
def test_refused_in_a_chat(field: str, value: Any) -> None:
    with pytest.raises(Refusal) as caught:
        parse_chat(**{field: value})
    check_refusal(caught.value, field)


@pytest.mark.parametrize(("field", "value"), cases(COMPLETION_REFUSED))
def test_refused_in_a_completion(field: str, value: Any) -> None:
    with pytest.raises(Refusal) as caught:
        parse_completion(**{field: value})
    check_refusal(caught.value, field)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "wizard", "content": "a"}, "messages[1].role"),
        ({"role": "tool", "content": "a"}, "messages[1].tool_call_id"),
        ({"role": "tool", "content": "a", "tool_call_id": "x"}, "messages[1].tool_call_id"),
        ({"role": "user", "content": "a", "tool_call_id": "x"}, "messages[1].tool_call_id"),
        ({"role": "user", "content": "a", "tool_calls": [CALL]}, "messages[1].tool_calls"),
        ({"role": "user", "content": "a", "refusal": "b"}, "messages[1].refusal"),
        (
            {"role": "assistant", "tool_calls": [called("f", '{"a":' + "[" * 32 + "]" * 32 + "}")]},
            "messages[1].tool_calls[0].function.arguments",
        ),
        ({"role": "function", "content": "a", "name": "f"}, "messages[1].role"),
        (
            {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f"}}]},
            "messages[1].tool_calls[0].function.arguments",
        ),
        (
            {"role": "assistant", "tool_calls": [called("f", "[1]")]},
            "messages[1].tool_calls[0].function.arguments",
        ),
        (
            {"role": "assistant", "tool_calls": [called("f", "{")]},
            "messages[1].tool_calls[0].function.arguments",
        ),
        ({"content": "a"}, "messages[1].role"),
        ({"role": "user"}, "messages[1].content"),
        ({"role": "user", "content": None}, "messages[1].content"),
        ({"role": "user", "content": []}, "messages[1].content"),
        ({"role": "user", "content": "a", "extra": 1, "name": 5}, "messages[1].name"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[1].content[0].text"),
        ({"role": "user", "content": [{"type": "video"}]}, "messages[1].content[0].type"),
        ("hello", "messages[1]"),
    ],
)
def test_message_at_fault_is_named(message: object, param: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse_chat(messages=[*MESSAGES, message])
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, "audio"),
        ({"type": "file", "file": {"file_id": "f"}}, "file"),
    ],
)
def test_parts_that_no_model_reads_are_refused_by_kind(part: object, kind: str) -> None:
    content = [{"type": "text", "text": "what is this?"}, part]
    with pytest.raises(Refusal) as caught:
        parse_chat(messages=[{"role": "user", "content": content}])
    assert caught.value.param == "messages[0].content[1]"
    assert kind in caught.value.message


def test_images_are_kept_in_their_places_and_do_not_count_as_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,", "detail": "low"}}
    content = [{"type": "text", "text": "ab"}, image, {"type": "text", "text": "c"}]
    ask = parse_chat(messages=[{"role": "user", "content": content}])
    (turn,) = ask.turns
    (picture,) = turn.pictures
    assert (turn.content, picture.at, picture.detail) == ("abc", 2, "low")
    assert ask.needs == {"vision": "messages[0].content[1]"}
    assert not parse_chat().pictures


def test_text_parts_join_and_developer_is_system() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    ask = parse_chat(messages=[{"role": "developer", "content": content}])
    assert [(turn.role, turn.content) for turn in ask.turns] == [("system", "ab")]


def test_options_of_a_stream_need_a_stream() -> None:
    with pytest.raises(Refusal) as caught:
        parse_chat(stream_options={"include_usage": True})
    check_refusal(caught.value, "stream_options")
    assert parse_chat(stream=True, stream_options={"include_usage": True}).include_usage
    with pytest.raises(Refusal) as caught:
        parse_chat(stream=True, stream_options={"include_usage": 1, "include_everything": True})
    assert caught.value.param == "stream_options.include_usage"


def test_two_names_of_the_output_bound_must_agree() -> None:
    assert parse_chat(max_tokens=5, max_completion_tokens=5).output_tokens == 5
    assert parse_chat(max_completion_tokens=7).output_field == "max_completion_tokens"
    with pytest.raises(Refusal) as caught:
        parse_chat(max_tokens=5, max_completion_tokens=6)
    assert caught.value.param == "max_completion_tokens"


def test_defaults_are_those_of_the_api() -> None:
    sampling = parse_chat().sampling
    assert (sampling.temperature, sampling.top_p, sampling.n) == (1.0, 1.0, 1)
    assert (sampling.top_k, sampling.min_p, sampling.seed, sampling.logprobs) == (0, 0, None, None)
    assert parse_chat().output_tokens is None and not parse_chat().stream


def test_every_parameter_reaches_the_engine() -> None:
    sampling = parse_chat(
        temperature=0.5, top_p=0.9, top_k=40, min_p=0.1, n=2, seed=7, frequency_penalty=1,
        presence_penalty=-1, logit_bias={"5": -100}, logprobs=True, top_logprobs=3,
        ignore_eos=True, min_tokens=4, repetition_penalty=1.25,
    ).sampling  # fmt: skip
    assert msgspec.structs.asdict(sampling) == {
        "max_tokens": 0, "n": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1,
        "frequency_penalty": 1.0, "presence_penalty": -1.0, "seed": 7, "logprobs": 3,
        "ignore_eos": True, "logit_bias": {5: -100.0}, "grammar": None, "prompt_logprobs": None,
        "min_tokens": 4, "repetition_penalty": 1.25,
    }  # fmt: skip
    assert parse_chat(top_k=-1).sampling.top_k == 0
    assert parse_chat(**LOGPROBS).sampling.logprobs == 0
    assert parse_completion(logprobs=5).sampling.logprobs == 5


def test_prompts_of_a_completion() -> None:
    assert parse_completion(prompt="a").text == "a"
    assert parse_completion(prompt=["a"]).text == "a"
    assert parse_completion(prompt=[1, 2]).tokens == (1, 2)
    assert parse_completion(prompt=[[1, 2]]).tokens == (1, 2)
    assert parse_completion(prompt=["a", "b"]).prompts == ("a", "b")
    assert parse_completion(prompt=[[1, 2], [3]]).prompts == ([1, 2], [3])
    assert parse_completion(echo=True, logprobs=2).sampling.prompt_logprobs == 2
    assert parse_completion(echo=True, max_tokens=0).sampling.prompt_logprobs == 0
    assert parse_completion(echo=True).sampling.prompt_logprobs is None


@pytest.mark.parametrize("given", [[], None, 5, [1, [1, "a"]]])
def test_embedding_input_is_checked(given: Any) -> None:
    with pytest.raises(Refusal) as caught:
        embeddings.parse(msgspec.json.encode({"model": "m", "input": given}))
    assert (caught.value.param or "").startswith("input")
