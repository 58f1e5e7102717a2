"""Server-sent events in every way that a network and a server can cut them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.engines.remote.events import (
    EVENT_BYTES_MAX,
    Chunk,
    EventReader,
    UpstreamBroken,
    read_chunk,
)

STREAM = (
    b": hi\n\ndata: one\r\n\r\ndata:two\ndata: more\nid: 3\n\nevent: x\n\n"
    b'data: {"a":"\xc3\xa9"}\n\n'
)
EVENTS = [b"one", b"two\nmore", b'{"a":"\xc3\xa9"}']


@given(st.lists(st.integers(min_value=0, max_value=len(STREAM)), max_size=12))
def test_cuts_change_nothing(cuts: list[int]) -> None:
    reader = EventReader()
    places = [0, *sorted(cuts), len(STREAM)]
    parts = [STREAM[a:b] for a, b in zip(places, places[1:], strict=False)]
    assert [event for part in parts for event in reader.feed(part)] == EVENTS


@pytest.mark.parametrize("line", [b"x" * 1024, b"data: " + b"x" * 1018 + b"\n"])
def test_an_event_without_end_is_bounded(line: bytes) -> None:
    reader = EventReader()
    with pytest.raises(UpstreamBroken):
        for _ in range(EVENT_BYTES_MAX // 1000):
            reader.feed(line)


def _read(data: bytes) -> Chunk:
    chunk = read_chunk(data)
    assert chunk is not None
    return chunk


def test_what_a_server_leaves_out_is_left_out() -> None:
    chunk = _read(b'{"choices":[{"delta":null,"logprobs":null}],"usage":null,"x":1}')
    assert chunk.choices[0].added_text == ""
    assert chunk.choices[0].added_calls is None
    assert _read(b'{"choices":[{"delta":{"refusal":"no"}}]}').choices[0].added_text == "no"
    assert _read(b"{}").choices == []
    assert read_chunk(b"[DONE]") is None


@pytest.mark.parametrize(
    ("delta", "thought"),
    [
        (b'"reasoning_content":"a"', "a"),
        (b'"reasoning":"a"', "a"),
        (b'"reasoning":"a","reasoning_content":"a"', "a"),
        (b'"reasoning":"a","reasoning_content":null', "a"),
        (b'"reasoning":{"effort":"low"}', ""),
        (b'"content":"a"', ""),
    ],
)
def test_thoughts_have_two_names(delta: bytes, thought: str) -> None:
    (choice,) = _read(b'{"choices":[{"delta":{%b}}]}' % delta).choices
    assert choice.added_reasoning == thought


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b'{"choices":[{"index":"a"}]}'])
def test_what_is_no_chunk_breaks_the_stream(data: bytes) -> None:
    with pytest.raises(UpstreamBroken):
        read_chunk(data)
