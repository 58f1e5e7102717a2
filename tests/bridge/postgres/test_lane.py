"""The lane by itself: batches, order, errors, time-outs, statements that do not exist."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import NoReturn

import pytest

from controlplane.bridge.postgres import lane as lane_module
from controlplane.bridge.postgres.arrays import nested_array, text_array, word_array
from controlplane.bridge.postgres.lane import PostgresLane, PreparedCall
from tests.support.money import dsn, rows
from tests.support.waiting import until

STATEMENTS = {
    b"echo": b"SELECT $1::text",
    b"fail": b"SELECT 1 / $1::int",
    b"sleep": b"SELECT pg_sleep($1::float)",
    b"texts": b"SELECT array_to_string($1::text[], '|')",
    b"fence": b"SELECT set_config('default_transaction_read_only', 'on', false)",
    b"write": b"CREATE TABLE written (number int)",
    b"sync": b"SELECT current_setting('synchronous_commit')",
}
Outcome = tuple[str, object]


class Script:
    """A source that sends what it is given and writes down what happened."""

    def __init__(self) -> None:
        self.calls: list[PreparedCall] = []
        self.outcomes: list[Outcome] = []
        self.connections = 0

    def add(self, statement: bytes, *parameters: bytes, durable: bool = False) -> None:
        note: Callable[[Outcome], None] = self.outcomes.append
        self.calls.append(
            PreparedCall(
                statement=statement,
                parameters=lambda: list(parameters),
                answered=lambda value: note(("answered", value)),
                failed=lambda state, _: note(("failed", state)),
                lost=lambda: note(("lost", None)),
                durable=durable,
            )
        )

    def connected(self) -> None:
        self.connections += 1

    def next_call(self) -> PreparedCall | None:
        return self.calls.pop(0) if self.calls else None


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def lane(database: str, script: Script) -> AsyncIterator[PostgresLane]:
    made = PostgresLane("test", dsn(), script, STATEMENTS)
    made.start()
    await until(lambda: not made.known_down)
    yield made
    await made.close()


async def test_calls_are_answered_in_order(lane: PostgresLane, script: Script) -> None:
    big = b"x" * 3_000_000
    script.add(b"echo", b"one")
    script.add(b"fail", b"0")
    script.add(b"echo", big, durable=True)
    script.add(b"fail", b"0", durable=True)
    script.add(b"echo", b"last")
    lane.wake()
    await until(lambda: len(script.outcomes) == 5)
    assert script.outcomes == [
        ("answered", b"one"),
        ("failed", "22012"),
        ("answered", big),
        ("failed", "22012"),
        ("answered", b"last"),
    ]


async def test_what_cannot_be_made_stops_no_call_behind_it(
    lane: PostgresLane, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.add(b"echo", b"unsendable")
    script.calls[0].parameters = broken
    script.add(b"echo", b"unheard")
    script.calls[1].answered = broken
    script.add(b"echo", b"one")
    script.add(b"echo", b"two")
    monkeypatch.setattr(script, "next_call", failing_once(script.next_call))
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    lane.wake()
    await until(lambda: len(script.outcomes) == 3)
    assert script.outcomes == [("failed", "XX000"), ("answered", b"one"), ("answered", b"two")]


def broken(*_: object) -> NoReturn:
    raise ValueError("broken")


def failing_once(call: Callable[[], PreparedCall | None]) -> Callable[[], PreparedCall | None]:
    """The same, but for its first time."""
    failed = False

    def next_call() -> PreparedCall | None:
        nonlocal failed
        if not failed:
            failed = True
            broken()
        return call()

    return next_call


async def test_sessions_commit_without_the_disk(lane: PostgresLane, script: Script) -> None:
    script.add(b"sync")
    script.add(b"sync", durable=True)
    lane.wake()
    await until(lambda: len(script.outcomes) == 2)
    assert script.outcomes == [("answered", b"off")] * 2


async def test_a_cut_connection_reports_the_call_lost(lane: PostgresLane, script: Script) -> None:
    script.add(b"sleep", b"5")
    lane.wake()
    asleep = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    await until(lambda: bool(rows(asleep)))
    rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'sluice_gateway'")
    await until(lambda: script.connections == 2)
    assert script.outcomes == [("lost", None)]
    script.add(b"echo", b"again")
    lane.wake()
    await until(lambda: script.outcomes[1:] == [("answered", b"again")])


async def test_a_host_that_takes_no_writes_any_more_is_left(
    lane: PostgresLane, script: Script
) -> None:
    script.add(b"fence")
    script.add(b"write")
    lane.wake()
    await until(lambda: script.connections == 2)
    assert script.outcomes == [("answered", b"on"), ("lost", None)]
    script.add(b"echo", b"again")
    lane.wake()
    await until(lambda: script.outcomes[2:] == [("answered", b"again")])


async def test_a_silent_server_is_given_up(
    lane: PostgresLane, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_module, "FLIGHT_S_MAX", 0.2)
    script.add(b"sleep", b"4")
    lane.wake()
    await until(lambda: script.connections == 2)
    assert script.outcomes == [("lost", None)]


async def test_a_missing_function_keeps_trying(database: str, script: Script) -> None:
    lane = PostgresLane("test", dsn(), script, {b"gone": b"SELECT no_such_function()"})
    lane.start()
    await asyncio.sleep(0.4)
    assert lane.known_down
    assert script.connections == 0
    await lane.close()


async def test_array_literals_come_back_as_they_were(lane: PostgresLane, script: Script) -> None:
    texts = ['quote " and \\', "{brace, comma}", "", "NULL", "  spaced ", "Ünïcode ☂"]
    script.add(b"texts", text_array(texts))
    script.add(b"texts", text_array([]))
    script.add(b"texts", nested_array([("1", "2"), ()]))
    script.add(b"texts", word_array([("a\x1fb", 'c"'), ("\0d", "")]))
    lane.wake()
    await until(lambda: len(script.outcomes) == 4)
    values = [str(value, "utf-8") for _, value in script.outcomes if isinstance(value, bytes)]
    assert values == ["|".join(texts), "", "{1,2}|{}", 'ab\x1fc"|d\x1f']
