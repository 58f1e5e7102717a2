"""A comparison that a page starts: one at a time for all web processes, where a gateway is."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Iterator
from threading import Event
from types import ModuleType
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from redis import Redis

from controlplane.core.outbound import NotReached
from controlplane.core.permissions import Role
from controlplane.insights import comparison_runs as runs
from controlplane.insights.client import KEY_VARIABLE
from controlplane.tenants.people.services import membership_set
from tests.support.money import rows
from tests.support.people import Cast, make_cast
from tests.support.servers import redis_door
from tests.support.waiting import WAIT_S_MAX, wait_for

PAGE = "https://sluice.example.org"


@pytest.fixture
def cast(database: str) -> Iterator[Cast]:
    with redis_door() as door:
        door.flushall()
        made = make_cast()
        membership_set(
            actor=made.alice, organization=made.acme, user=made.stella, role=Role.DEVELOPER
        )
        yield made
        door.flushall()


class Command:
    """Stands for the operator's command: it runs until it is let go, and fails with `said`."""

    def __init__(self) -> None:
        self.argv: list[str] = []
        self.token = ""
        self.said = "Four ways\nCommandError: No answer.\n"
        self.over = Event()
        self.shut = ""

    def dial(self, _: str, url: str, **__: Any) -> tuple[int, bytes]:
        """Whether a gateway's address leads to it; all but those that begin with `shut` do."""
        if self.shut and url.startswith(self.shut):
            raise NotReached("no answer")
        return 200, b""

    def run(self, argv: list[str], *, env: dict[str, str], **_: Any) -> Any:
        self.argv, self.token = argv, env[KEY_VARIABLE]
        assert self.over.wait(WAIT_S_MAX)
        return subprocess.CompletedProcess(argv, 1 if self.said else 0, self.said)

    @property
    def asked(self) -> str:
        """The gateway's address."""
        wait_for(lambda: self.argv, "command")
        return self.argv[self.argv.index("--url") + 1]


@pytest.fixture
def command(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    made = Command()
    monkeypatch.setattr(subprocess, "run", made.run)
    monkeypatch.setattr(runs, "outbound", made.dial)
    monkeypatch.setattr(runs, "compared_models", lambda **_: ("large", "small"))
    yield made
    made.over.set()
    wait_for(lambda: not runs.comparison_state()[0], "end")


def elsewhere() -> ModuleType:
    """The same module as another process has it."""
    spec = runs.__spec__
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def start(cast: Cast) -> None:
    runs.comparison_start(
        actor=cast.stella, project=cast.project, url=PAGE, large=None, small=None, requests=2
    )


def lives(instance: str, url: str, *pools: str) -> None:
    rows("SELECT FROM fleet_gateway_alive(%s, %s, 0, %s::text[])", instance, url, list(pools))


def test_one_runs_at_a_time_and_every_process_tells_the_same(cast: Cast, command: Command) -> None:
    start(cast)
    other = elsewhere()
    assert runs.comparison_state() == other.comparison_state() == (True, "")
    with pytest.raises(ValidationError) as refused:
        start(cast)
    assert refused.value.message_dict == {"project": ["A comparison is running already."]}
    assert command.asked == PAGE and command.token
    command.over.set()
    wait_for(lambda: not other.comparison_state()[0], "end")
    assert other.comparison_state() == (False, "CommandError: No answer.")
    command.said = ""
    start(cast)
    wait_for(lambda: not other.comparison_state()[0], "end")
    assert other.comparison_state() == (False, "")


@pytest.mark.parametrize(
    ("url", "shut", "asked"),
    [
        ("ws://gateway:8000/fleet", "", "http://gateway:8000"),
        ("wss://sluice.internal/fleet/gw1", "", "https://sluice.internal"),
        ("ws://gateway:8000/fleet", "http://gateway:8000", PAGE),
    ],
)
def test_a_gateway_of_all_pools_is_asked_where_nodes_dial_it_if_that_leads_there(
    cast: Cast, command: Command, url: str, shut: str, asked: str
) -> None:
    command.shut = shut
    lives("a", "ws://part:8000/fleet", "other")
    lives("b", "")
    lives("c", url)
    start(cast)
    assert command.asked == asked


def test_without_redis_none_is_started(
    cast: Cast, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> Redis:
        return Redis(port=1)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "connect_redis", away)
        with pytest.raises(ValidationError, match="Redis does not answer"):
            start(cast)
        assert runs.comparison_state() == (False, "")
