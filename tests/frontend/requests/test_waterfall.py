"""Bars of a waterfall stand where their times say."""

import pytest

from controlplane.kernel.receipt import NetworkLine, Receipt
from controlplane.kernel.spans import ABSENT, INDEX, SPANS
from frontend.requests.views import read_line
from frontend.requests.waterfall import WIDTH_LEAST, Waterfall, make_waterfall

TOTAL_US = 1_000


def _made(total_us: int = TOTAL_US, **times: tuple[int, int]) -> Waterfall:
    pairs = [(ABSENT, 0)] * len(SPANS)
    for name, pair in times.items():
        pairs[INDEX[name.replace("__", ".")]] = pair
    return make_waterfall(pairs, total_us, 400)


def test_a_bar_is_placed_by_start_and_duration() -> None:
    made = _made(s5_infer=(200, 500))
    bar = next(bar for bar in made.bars if bar.name == "s5_infer")
    assert (bar.left, bar.width, bar.stage) == (20.0, 50.0, 5)


def test_what_stages_do_not_explain_is_unattributed() -> None:
    made = _made(s1_admission=(0, 100), s5_infer=(100, 700), s5_infer__decode=(100, 650))
    assert made.unattributed_us == 200


def test_time_before_the_gateway_moves_the_drawing_and_belongs_to_no_stage() -> None:
    made = _made(s1_admission=(0, 100), s1_admission__arrival=(-1_000, 1_000))
    bar = next(bar for bar in made.bars if bar.name == "s1_admission.arrival")
    assert (made.first_us, made.before_us, bar.left, bar.width) == (-1_000, 1_000, 0.0, 50.0)
    assert (bar.outside, bar.stage) == (True, 0)
    assert made.unattributed_us == 900


def test_a_span_of_no_length_can_still_be_seen_inside_the_drawing() -> None:
    made = _made(s7_bill=(TOTAL_US, 0))
    bar = next(bar for bar in made.bars if bar.name == "s7_bill")
    assert bar.width == WIDTH_LEAST
    assert bar.left + bar.width == pytest.approx(100)


def test_what_did_not_run_has_no_time() -> None:
    made = _made()
    assert {bar.start_us for bar in made.bars} == {None}
    assert made.layers_run == 0


def test_rows_of_an_older_table_are_shown_as_far_as_they_go() -> None:
    assert len(make_waterfall([(0, 5)], TOTAL_US, -1).bars) == len(SPANS)
    assert make_waterfall([(0, 5)], TOTAL_US, -1).first_token_at is None


def test_a_round_trip_is_drawn_from_arrival_within_the_drawing_and_adds_to_nothing() -> None:
    pairs = [(0, TOTAL_US)]
    without = make_waterfall(pairs, TOTAL_US, -1)
    assert (without.line.start_us, without.line.duration_us) == (None, None)
    short, long = (
        make_waterfall(pairs, TOTAL_US, -1, rtt) for rtt in (TOTAL_US // 2, 9 * TOTAL_US)
    )
    assert (short.line.left, short.line.width) == (0, 50)
    assert (long.line.left, long.line.width, long.line.duration_us) == (0, 100, 9 * TOTAL_US)
    assert without.bars == short.bars == long.bars
    assert without.unattributed_us == long.unattributed_us


def test_a_line_says_whose_it_is_and_what_nobody_told_is_not_known() -> None:
    own = read_line(NetworkLine(42, "client"))
    assert (own.rtt_us, own.whose) == (42, "the client")
    proxied = read_line(NetworkLine(42, "proxy"))
    assert (proxied.rtt_us, proxied.whose) == (42, "the proxy")
    for unknown in (None, NetworkLine(0, "client")):
        assert read_line(unknown).rtt_us is None


@pytest.mark.parametrize(("answer_us", "lasted_us"), [(700, 400), (0, 700)])
def test_thoughts_are_a_phase_of_decoding(answer_us: int, lasted_us: int) -> None:
    pairs = [(ABSENT, 0)] * len(SPANS)
    pairs[INDEX["s5_infer.decode"]] = (250, 700)
    receipt = Receipt(first_thought_us=300, first_answer_us=answer_us)
    made = make_waterfall(pairs, TOTAL_US, 300, receipt=receipt)
    names = [bar.name for bar in made.bars]
    place = names.index("s5_infer.thinking")
    bar = made.bars[place]
    assert names[place - 1] == "s5_infer.decode" and len(names) == len(SPANS) + 1
    assert (bar.short, bar.stage, bar.is_stage) == ("thinking", 5, False)
    assert (bar.start_us, bar.duration_us, bar.left) == (300, lasted_us, 30.0)
    assert made.layers_run == 1
    assert make_waterfall(pairs, TOTAL_US, 300).layers_run == 1
