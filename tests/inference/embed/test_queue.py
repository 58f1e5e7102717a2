"""Which inputs run together: budgets, turns between requests, and runs of like length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inference.contract.frames import Job, Sampling
from inference.embed.queue import RUN_PADDING_TOKENS_MAX, InputQueue, Piece, Request, cut_runs

LENGTHS = st.lists(st.integers(1, 512), min_size=1, max_size=40)


def make_request(name: int, lengths: list[int]) -> Request:
    job = Job(
        request=bytes([name]) * 16,
        model="m",
        tokens=[],
        salt=b"",
        hashes=b"",
        sampling=Sampling(max_tokens=0),
        stop_tokens=[],
        deadline_ms=1000,
        inputs=[[0] * length for length in lengths],
    )
    return Request(job, received_us=0)


def make_queue(*requests: Request) -> InputQueue:
    queue = InputQueue()
    queue.requests = {request.job.request: request for request in requests}
    return queue


@given(st.lists(LENGTHS, min_size=1, max_size=5), st.integers(1, 3000), st.integers(1, 50))
def test_every_input_runs_once_within_the_bounds(
    requests: list[list[int]], tokens_max: int, inputs_max: int
) -> None:
    queue = make_queue(*(make_request(name, lengths) for name, lengths in enumerate(requests)))
    seen: list[tuple[bytes, int]] = []
    while queue:
        pieces = queue.take(tokens_max=tokens_max, inputs_max=inputs_max)
        assert 1 <= len(pieces) <= inputs_max
        tokens = sum(len(piece.tokens) for piece in pieces)
        assert tokens <= tokens_max or len(pieces) == 1
        seen += [(piece.request.job.request, piece.place) for piece in pieces]
    wanted = [
        (bytes([name]) * 16, at) for name, many in enumerate(requests) for at in range(len(many))
    ]
    assert sorted(seen) == sorted(wanted)
    assert queue.take(tokens_max=tokens_max, inputs_max=inputs_max) == []
    assert [request.waiting_tokens for request in queue.requests.values()] == [0] * len(requests)


def test_a_large_request_holds_up_no_small_one() -> None:
    large, small = make_request(1, [100] * 2000), make_request(2, [100])
    pieces = make_queue(large, small).take(tokens_max=400, inputs_max=100)
    assert [piece.request for piece in pieces] == [large, small, large, large]


@given(LENGTHS)
def test_runs_hold_every_piece_and_waste_little(lengths: list[int]) -> None:
    request = make_request(1, lengths)
    runs = cut_runs([Piece(request, place) for place in range(len(lengths))])
    assert sorted(piece.place for run in runs for piece in run) == list(range(len(lengths)))
    for run in runs:
        sizes = [len(piece.tokens) for piece in run]
        assert max(sizes) * len(sizes) - sum(sizes) <= RUN_PADDING_TOKENS_MAX


def test_equal_lengths_are_one_run() -> None:
    request = make_request(1, [17] * 50)
    assert len(cut_runs([Piece(request, place) for place in range(50)])) == 1
