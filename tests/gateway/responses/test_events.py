"""Events of a response: in order, numbered, and together the response that comes whole."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.answer import Charge, Piece
from controlplane.gateway.refusal import node_lost
from controlplane.gateway.responses.request import parse
from controlplane.gateway.responses.writer import ResponseWriter
from controlplane.kernel.price import TokenCounts
from inference.contract.frames import Usage
from inference.contract.parts import ToolCallDelta

USAGE = Usage(prompt_tokens=7, cached_tokens=3, completion_tokens=5, reasoning_tokens=2)
CHARGE = Charge(USAGE, TokenCounts(uncached=4, cached=3, output=5), 12)
TOOLS = [{"type": "custom", "name": "patch"}, {"type": "function", "name": "run"}]


def writer(*, stream: bool) -> ResponseWriter:
    body = {"model": "m", "input": "Hi", "stream": stream, "tools": TOOLS}
    ask = parse(json.dumps(body).encode())
    return ResponseWriter(
        b"r" * 16, ask, fingerprint="fp", token_text=lambda token: ("", b""), prompt_tokens=7
    )


def events(data: bytes) -> list[dict[str, Any]]:
    """The events of a stream, whose names are their types."""
    found = []
    for part in data.decode().removesuffix("\n\n").split("\n\n"):
        name, _, content = part.partition("\n")
        event = json.loads(content.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def call(place: int, name: str, parts: list[str]) -> list[Piece]:
    """A call in pieces."""
    deltas = [ToolCallDelta(index=place, id=f"call_{place}", name=name)]
    deltas += [ToolCallDelta(index=place, arguments=part) for part in parts]
    return [Piece(choice=0, text="", logprobs=[], calls=[delta]) for delta in deltas]


texts = st.lists(st.text(min_size=1, max_size=8), max_size=4)


@given(
    thoughts=texts,
    text=texts,
    calls=st.lists(st.sampled_from(["patch", "run"]), max_size=3),
    finish=st.sampled_from(["stop", "length", "tool_calls", "content_filter"]),
)
def test_the_events_together_are_the_response(
    thoughts: list[str], text: list[str], calls: list[str], finish: str
) -> None:
    pieces = [Piece(choice=0, text="", logprobs=[], reasoning=part) for part in thoughts]
    pieces += [Piece(choice=0, text=part, logprobs=[]) for part in text]
    for place, name in enumerate(calls):
        pieces += call(place, name, ['{"input":', '"+ line"}'])
    pieces.append(Piece(choice=0, text="", logprobs=[], finish=finish))
    streamed, whole = writer(stream=True), writer(stream=False)
    data = b"".join(streamed.chunk([msgspec.structs.replace(piece)]) for piece in pieces)
    found = events(data + streamed.last_chunk(CHARGE))
    joined = pieces[0]
    for later in pieces[1:]:
        joined.join(later)
    answer = json.loads(whole.body([joined], CHARGE))
    assert found[-1]["response"] == answer
    assert found[-1]["type"] == f"response.{answer['status']}"
    assert answer["status"] == ("completed" if finish in ("stop", "tool_calls") else "incomplete")
    done = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    assert done == answer["output"]
    for item in answer["output"]:
        shown = [each for each in found if each.get("item_id") == item["id"] and "delta" in each]
        joined_text = "".join(each["delta"] for each in shown)
        content = item["content"][0]["text"] if "content" in item else None
        assert joined_text == (content or item.get("arguments") or item.get("input"))
    assert [item["name"] for item in answer["output"] if "name" in item] == calls
    assert answer["usage"]["output_tokens_details"] == {"reasoning_tokens": 2}


@given(first=st.text(min_size=1), text=st.text(min_size=1))
def test_the_short_way_to_a_delta_writes_the_same(first: str, text: str) -> None:
    short, long = writer(stream=True), writer(stream=True)
    opening = Piece(choice=0, text=first, logprobs=[])
    for each in (short, long):
        each.chunk([opening])
    for _ in range(2):
        (ours,) = _facts(short.next_chunk(0, text))
        (theirs,) = _facts(long.chunk([Piece(choice=0, text=text, logprobs=[])]))
        assert ours == theirs
    assert short.last_chunk(CHARGE) == long.last_chunk(CHARGE)


def _facts(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(part.partition("data: ")[2]) for part in data.decode().split("\n\n") if part]


def test_a_failed_stream_ends_with_the_failed_response() -> None:
    failing = writer(stream=True)
    data = failing.chunk([Piece(choice=0, text="Hel", logprobs=[])])
    found = events(data + failing.failure(node_lost()))
    assert found[-1]["type"] == "response.failed"
    response = found[-1]["response"]
    assert (response["status"], response["error"]["code"]) == ("failed", "node_lost")
    (item,) = response["output"]
    assert (item["status"], item["content"][0]["text"]) == ("incomplete", "Hel")


def test_a_charge_that_is_delayed_takes_the_end_back() -> None:
    failing = writer(stream=True)
    sent = failing.chunk([Piece(choice=0, text="Hello", logprobs=[], finish="stop")])
    failing.last_chunk(CHARGE)
    kinds = [event["type"] for event in _facts(sent + failing.failure(node_lost()))]
    assert kinds[-1] == "response.failed" and "response.completed" not in kinds


def test_text_behind_a_call_is_not_of_its_arguments() -> None:
    streamed = writer(stream=True)
    begun, rest = call(0, "run", ['{"a":1}'])
    rest.text = "Done"
    data = streamed.chunk([begun]) + streamed.chunk([rest])
    data += streamed.chunk([Piece(choice=0, text="", logprobs=[], finish="tool_calls")])
    output = _facts(data + streamed.last_chunk(CHARGE))[-1]["response"]["output"]
    assert [item.get("arguments", item.get("content")) for item in output][0] == '{"a":1}'
    assert output[1]["content"][0]["text"] == "Done"
