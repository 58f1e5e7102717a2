"""Credits among gateways: even, lent where unused, and never more than the total in use."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from inference.node.credits import GREETING, PEAK_S, TURN_S, CreditShares, divide

ROUND_S = 0.05


@pytest.mark.parametrize(
    ("total", "wants", "parts"),
    [
        (64, [1, 1], [32, 32]),
        (64, [100, 8], [56, 8]),
        (64, [100, 100], [32, 32]),
        (9, [9, 9], [4, 5]),
        (9, [1, 1], [5, 4]),
        (10, [2, 100, 3], [2, 5, 3]),
        (5, [], []),
    ],
)
def test_nobody_gets_more_than_it_wants_while_another_has_less(
    total: int, wants: list[int], parts: list[int]
) -> None:
    assert divide(total, wants) == parts


def test_fewer_credits_than_gateways_go_round() -> None:
    turns = [divide(1, [1, 1, 1], first=first) for first in range(3)]
    assert turns == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


class Rig:
    """Gateways that follow the rules over links that take their time, and the node's account."""

    def __init__(self, total: int, names: str) -> None:
        self.total = total
        self.shares = CreditShares(total)
        self.now = 0.0
        self.jobs: dict[str, int] = {}
        # What each gateway believes to have, and what is on its way to it and from it.
        self.credits: dict[str, int] = {}
        self.active: dict[str, int] = {}
        self.down: dict[str, deque[tuple[int, int]]] = {}
        self.up: dict[str, deque[int | None]] = {}
        for name in names:
            self.join(name, len(names))

    def join(self, name: str, expected: int) -> None:
        self.credits[name] = self.shares.greet(name, expected, self.jobs)
        self.active[name] = 0
        self.down[name], self.up[name] = deque(), deque([GREETING])

    def leave(self, name: str) -> None:
        """Its jobs stay in the engine for a while; frames under way are lost."""
        self.shares.leave(name)
        self.jobs["lost"] = self.jobs.get("lost", 0) + self.jobs.pop(name, 0)
        del self.credits[name], self.active[name], self.down[name], self.up[name]

    def send(self, name: str) -> bool:
        """A gateway dispatches a job if it believes to have a credit."""
        if self.active[name] >= self.credits[name]:
            return False
        self.active[name] += 1
        self.up[name].append(None)
        return True

    def end(self, name: str) -> None:
        """The engine ends a job; its gateway hears of it with the next frame."""
        if self.jobs.get(name):
            self.jobs[name] -= 1
            if name in self.active:
                self.active[name] -= 1

    def arrive_up(self, name: str) -> None:
        if not self.up[name]:
            return
        frame = self.up[name].popleft()
        if frame is None:
            self.jobs[name] = self.jobs.get(name, 0) + 1
            assert sum(self.jobs.values()) <= self.total
        else:
            self.shares.taken(name, frame)

    def arrive_down(self, name: str) -> None:
        if self.down[name]:
            number, self.credits[name] = self.down[name].popleft()
            self.up[name].append(number)

    def round(self) -> None:
        self.now += ROUND_S
        self.shares.share(self.jobs, self.now, lambda n, *told: self.down[n].append(told))

    def settle(self, rounds: int) -> None:
        for _ in range(rounds):
            self.round()
            for name in self.credits:
                for _ in range(4):
                    self.arrive_down(name)
                    self.arrive_up(name)

    def fill(self, name: str, rounds: int) -> None:
        """One gateway has endless work that never ends."""
        for _ in range(rounds):
            while self.send(name):
                self.arrive_up(name)
            self.settle(1)


def test_two_gateways_begin_with_an_even_share() -> None:
    rig = Rig(9, "ab")
    assert rig.credits == {"a": 4, "b": 4}
    rig.settle(2)
    assert sorted(rig.credits.values()) == [4, 5]


def test_before_its_welcome_a_gateway_is_told_nothing() -> None:
    shares = CreditShares(8)
    told: list[tuple[str, int, int]] = []
    assert shares.greet("a", 2, {}) == 4
    for now_s in (0.0, ROUND_S):
        shares.share({}, now_s, lambda *news: told.append(news))
    assert told == []
    shares.taken("a", GREETING)
    shares.share({}, 2 * ROUND_S, lambda *news: told.append(news))
    assert told == [("a", 1, 8)]


def test_a_busy_gateway_is_lent_what_the_other_does_not_use_and_gives_it_back() -> None:
    rig = Rig(64, "ab")
    rig.fill("a", 40)
    assert rig.credits == {"a": 56, "b": 8}
    rig.fill("b", 40)
    # What the borrower has running stays; nothing of its own is taken from the other.
    assert rig.jobs == {"a": 56, "b": 8}
    for _ in range(64):
        rig.end("a")
        rig.fill("b", 1)
        rig.fill("a", 1)
    assert rig.credits == {"a": 32, "b": 32}


def test_a_gateway_that_goes_leaves_its_share_when_its_jobs_have_ended() -> None:
    rig = Rig(8, "ab")
    rig.fill("b", 2)
    held = rig.jobs["b"]
    assert held >= 4
    rig.leave("b")
    rig.settle(4)
    assert rig.credits["a"] == 8 - held
    rig.jobs.pop("lost")
    rig.settle(4)
    assert rig.credits == {"a": 8}


def test_a_gateway_that_joins_a_full_node_gets_credits_as_jobs_end() -> None:
    rig = Rig(8, "a")
    rig.fill("a", 2)
    rig.join("b", 2)
    assert rig.credits["b"] == 0
    rig.settle(3)
    assert rig.credits["b"] == 0
    for _ in range(4):
        rig.end("a")
        rig.settle(3)
    assert rig.credits["b"] >= 1


def test_one_credit_goes_round_among_gateways() -> None:
    rig = Rig(1, "abc")
    served = set()
    for _ in range(int(6 * TURN_S / ROUND_S)):
        rig.settle(1)
        assert sum(rig.credits.values()) <= 1
        served |= {name for name, credits in rig.credits.items() if credits}
    assert served == set("abc")


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_events_brings_more_jobs_than_credits(seed: int) -> None:
    draw = Random(seed)
    rig = Rig(draw.choice((1, 3, 8, 64)), "abcd"[: draw.randint(1, 4)])
    for _ in range(3_000):
        name = draw.choice("abcd")
        event = draw.random()
        if event < 0.01 and name not in rig.credits:
            rig.join(name, len(rig.credits) + 1)
        elif event < 0.02 and name in rig.credits:
            rig.leave(name)
        elif event < 0.1:
            rig.round()
        elif event < 0.2:
            rig.end(draw.choice(["lost", name]))
        elif name in rig.credits:
            draw.choice((rig.send, rig.send, rig.arrive_up, rig.arrive_down))(name)
    while any(rig.jobs.values()):
        for name in list(rig.jobs):
            rig.end(name)
    rig.settle(int(4 * PEAK_S / ROUND_S))
    if rig.credits and rig.total >= len(rig.credits):
        assert sum(rig.credits.values()) == rig.total
