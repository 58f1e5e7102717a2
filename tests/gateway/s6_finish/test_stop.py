"""Stop strings over any chunking, against the plain search in the whole text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.s6_finish.stop import StopFinder

# A small alphabet, so that stop strings occur, overlap and nearly occur.
TEXT = st.text("abcé", max_size=40)
STOPS = st.lists(st.text("abcé", min_size=1, max_size=5), max_size=4).map(tuple)


@given(chunks=st.lists(TEXT, max_size=12), stops=STOPS)
def test_same_cut_as_a_search_in_the_whole(chunks: list[str], stops: tuple[str, ...]) -> None:
    finder = StopFinder(stops)
    shown = "".join(finder.feed(chunk) for chunk in chunks) + finder.close()
    whole = "".join(chunks)
    ends = [(whole.find(stop) + len(stop), whole.find(stop)) for stop in stops if stop in whole]
    assert finder.stopped == bool(ends)
    if not ends:
        assert shown == whole
        return
    # Chunks decide which of two overlapping stops is complete first; both cuts are right.
    cuts = {place for _, place in ends}
    assert len(shown) in cuts and whole.startswith(shown)
    assert not any(stop in shown for stop in stops)


@given(text=TEXT, stops=STOPS)
def test_character_by_character_ends_at_the_first_complete_stop(
    text: str, stops: tuple[str, ...]
) -> None:
    finder = StopFinder(stops)
    shown = "".join(map(finder.feed, text)) + finder.close()
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            assert shown == text[: end - max(map(len, complete))]
            return
    assert shown == text


@given(chunks=st.lists(TEXT, max_size=12), stops=STOPS)
def test_holds_back_less_than_the_longest_stop(chunks: list[str], stops: tuple[str, ...]) -> None:
    finder = StopFinder(stops)
    longest = max(map(len, stops), default=1)
    fed = shown = 0
    for chunk in chunks:
        shown += len(finder.feed(chunk))
        fed += len(chunk)
        if finder.stopped:
            return
        assert fed - shown < longest


def test_text_goes_straight_through_without_stops() -> None:
    finder = StopFinder(())
    assert finder.feed("anything") == "anything"
    assert finder.close() == ""
