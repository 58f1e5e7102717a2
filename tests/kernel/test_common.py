"""What a few have in common is told where chance does not explain it."""

from controlplane.kernel.objectives.common import OF_A_KIND_MIN, SHOWN_MAX, CommonValue, in_common


def _of(**values: str) -> dict[str, str]:
    return values


def test_a_value_that_all_others_have_as_often_is_none() -> None:
    worst = [_of(node="a", model="m")] * 10
    everyone = [(_of(node="a", model="m"), 60), (_of(node="b", model="m"), 50)]
    assert in_common(worst, everyone) == [CommonValue("node", "a", 10, 10, 0.5)]


def test_a_few_of_a_kind_say_nothing() -> None:
    worst = [*[_of(node="a")] * (OF_A_KIND_MIN - 1), *[_of(node="b")] * 8]
    everyone = [(_of(node="a"), OF_A_KIND_MIN - 1), (_of(node="b"), 1_000)]
    assert in_common(worst, everyone) == []


def test_without_others_there_is_nothing_to_compare_with() -> None:
    worst = [_of(node="a")] * 10
    assert in_common(worst, [(_of(node="a"), 15)]) == []
    assert in_common([], [(_of(node="a"), 15)]) == []


def test_what_is_blank_is_no_value_and_the_most_telling_comes_first() -> None:
    worst = [_of(route="", node="b", key="k")] * 8 + [_of(route="", node="a", key="k")] * 2
    everyone = [
        (_of(route="", node="b", key="k"), 8),
        (_of(route="", node="a", key="k"), 12),
        (_of(route="x", node="a", key="j"), 100),
    ]
    assert [one.dimension for one in in_common(worst, everyone)] == ["node", "key"]


def test_no_more_are_told_than_can_be_read() -> None:
    worst = [{f"d{place}": "v" for place in range(SHOWN_MAX + 2)}] * 10
    assert len(in_common(worst, [(worst[0], 10), ({}, 1_000)])) == SHOWN_MAX
