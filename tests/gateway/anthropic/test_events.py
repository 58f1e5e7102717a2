"""Events of a message: their order, and that joined they are the whole answer."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.answer import Charge, Piece
from controlplane.gateway.anthropic.render import MessageWriter
from controlplane.gateway.ask import Ask
from controlplane.kernel.price import TokenCounts
from inference.contract.frames import Sampling, Usage
from inference.contract.parts import ToolCallDelta

ASK = Ask(
    operation="chat",
    model="m",
    stream=True,
    include_usage=True,
    sampling=Sampling(max_tokens=0),
    output_tokens=None,
    stop=(),
    bytes=0,
)
USAGE = Usage(prompt_tokens=9, cached_tokens=4, completion_tokens=7, reasoning_tokens=2)
CHARGE = Charge(USAGE, TokenCounts(uncached=5, cached=4, output=7), 1000)


def writer() -> MessageWriter:
    return MessageWriter(b"r" * 16, ASK, prompt_tokens=9)


def piece(text: str = "", **fields: Any) -> Piece:
    return Piece(choice=0, text=text, logprobs=[], **fields)


def read(data: bytes) -> list[dict[str, Any]]:
    """Events, each under the name of its type."""
    events = []
    for part in data.decode().split("\n\n")[:-1]:
        name, line = part.split("\n")
        event = json.loads(line.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def joined(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the events make, as a client puts it together; holds their order."""
    first, *middle, last_but_one, last = events
    assert [first["type"], last_but_one["type"], last["type"]] == [
        "message_start", "message_delta", "message_stop",
    ]  # fmt: skip
    message: dict[str, Any] = first["message"]
    blocks, parts, under_way = message["content"], "", False
    for event in middle:
        if event["type"] == "content_block_start":
            assert not under_way and event["index"] == len(blocks)
            blocks.append(event["content_block"])
            under_way, parts = True, ""
            continue
        assert under_way and event["index"] == len(blocks) - 1
        if event["type"] == "content_block_stop":
            under_way = False
            if blocks[-1]["type"] == "tool_use" and parts:
                blocks[-1]["input"] = json.loads(parts)
            continue
        delta = event["delta"]
        if delta["type"] == "input_json_delta":
            parts += delta["partial_json"]
        elif delta["type"] == "signature_delta":
            blocks[-1]["signature"] = delta["signature"]
        else:
            field = delta["type"].removesuffix("_delta")
            blocks[-1][field] += delta[field]
    assert not under_way
    message.update(last_but_one["delta"])
    message["usage"] = last_but_one["usage"]
    message["sluice"] = last_but_one["sluice"]
    return message


def calls(index: int, name: str, given: dict[str, Any]) -> list[ToolCallDelta]:
    """A call as it comes: named, then its arguments in two parts."""
    text = json.dumps(given)
    half = len(text) // 2
    return [
        ToolCallDelta(index=index, id=f"call_x_{index}", name=name),
        ToolCallDelta(index=index, arguments=text[:half]),
        ToolCallDelta(index=index, arguments=text[half:]),
    ]


texts = st.text(min_size=1, max_size=8)
given_inputs = st.dictionaries(texts, texts | st.integers(), max_size=3)


@given(
    thoughts=st.lists(texts, max_size=3),
    said=st.lists(texts, max_size=4),
    inputs=st.lists(given_inputs, max_size=3),
    sizes=st.lists(st.integers(1, 4), min_size=1),
    end=st.sampled_from(["stop", "length", "tool_calls", "content_filter"]),
    match=st.none() | texts,
)
def test_deltas_joined_are_the_whole_answer(
    thoughts: list[str],
    said: list[str],
    inputs: list[dict[str, Any]],
    sizes: list[int],
    end: str,
    match: str | None,
) -> None:
    parts = [piece(reasoning=thought) for thought in thoughts]
    parts += [piece(text) for text in said]
    for index, each in enumerate(inputs):
        parts += [piece(calls=[call]) for call in calls(index, "find", each)]
    parts.append(piece(finish=end, stop=match))
    streamed, whole = writer(), piece()
    data = b""
    for place, part in enumerate(msgspec.json.decode(msgspec.json.encode(parts), type=list[Piece])):
        # Pieces that came together are one, as stage 6 hands them on.
        if part.text and not part.calls and place % sizes[0]:
            data += streamed.next_chunk(0, part.text)
        else:
            data += streamed.chunk([part])
    for part in parts:
        whole.join(part)
    data += streamed.last_chunk(CHARGE)
    body = json.loads(writer().body([whole], CHARGE))
    assert joined(read(data)) == body
    assert body["usage"]["input_tokens"] == 5 and body["usage"]["cache_read_input_tokens"] == 4
    assert body["usage"]["output_tokens_details"] == {"thinking_tokens": 2}


@given(said=st.lists(texts, min_size=2))
def test_the_short_way_writes_what_the_long_way_does(said: list[str]) -> None:
    short, long = writer(), writer()
    assert short.next_chunk(0, said[0]) == long.chunk([piece(said[0])])
    for text in said[1:]:
        assert short.next_chunk(0, text) == long.chunk([piece(text)])


def test_thoughts_text_and_two_calls_are_blocks_one_after_the_other() -> None:
    made = writer()
    data = made.chunk([piece(reasoning="Hm")]) + made.chunk([piece("a", reasoning=".")])
    data += made.next_chunk(0, "b")
    both = calls(0, "find", {"a": 1})
    data += made.chunk([piece(calls=both[:2])])
    # The rest of a call, what is no call, and the next call in one piece.
    data += made.chunk([piece("!", calls=[both[2], *calls(1, "stop", {})], finish="tool_calls")])
    events = read(data + made.last_chunk(CHARGE))
    kinds = [
        each.get("delta", {}).get("type") or each.get("content_block", {}).get("type")
        or each["type"]
        for each in events
    ]  # fmt: skip
    assert kinds == [
        "message_start", "thinking", "thinking_delta", "thinking_delta", "signature_delta",
        "content_block_stop", "text", "text_delta", "text_delta", "content_block_stop",
        "tool_use", "input_json_delta", "input_json_delta", "input_json_delta",
        "content_block_stop",
        "tool_use", "input_json_delta", "input_json_delta", "input_json_delta",
        "content_block_stop",
        "text", "text_delta", "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    message = joined(events)
    assert [block["type"] for block in message["content"]] == [
        "thinking", "text", "tool_use", "tool_use", "text",
    ]  # fmt: skip
    assert message["content"][2]["id"] == "call_x_0"
    assert message["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("finish", "stop", "told"),
    [
        ("stop", None, ("end_turn", None)),
        ("stop", "END", ("stop_sequence", "END")),
        ("length", None, ("max_tokens", None)),
        ("tool_calls", "END", ("tool_use", None)),
        ("content_filter", None, ("refusal", None)),
    ],
)
def test_why_it_ended(finish: str, stop: str | None, told: tuple[str, str | None]) -> None:
    body = json.loads(writer().body([piece("x", finish=finish, stop=stop)], CHARGE))
    assert (body["stop_reason"], body["stop_sequence"]) == told


def test_a_call_that_was_cut_off_is_none() -> None:
    cut = [*calls(0, "find", {"city": "Rome"}), *calls(1, "find", {"city": "Oslo"})[:2]]
    body = json.loads(writer().body([piece(calls=cut, finish="length")], CHARGE))
    assert [block["input"] for block in body["content"]] == [{"city": "Rome"}]
