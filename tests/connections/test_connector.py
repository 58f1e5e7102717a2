"""`manage.py connector`: feeds its node whole lines, starts it again, ends it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from pytest import MonkeyPatch

from controlplane.connections.connector import ConnectorChild
from controlplane.connections.keys import key_add
from controlplane.connections.management.commands import connector as command
from controlplane.connections.offers import offers_set
from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.selectors import node_credential_active
from inference import children
from tests.support.hosted import SECRET, make_connection, offer

STAND_IN = Path(__file__).parents[1] / "support" / "connector_node.py"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: MonkeyPatch) -> Iterator[Path]:
    """Where the stand-in writes; restarts come at once."""
    file = tmp_path / "told"
    monkeypatch.setenv("CONNECTOR_TOLD", str(file))
    monkeypatch.setattr(children, "BACKOFF_S_MIN", 0.01)
    yield file


def child(said: list[str]) -> ConnectorChild:
    return ConnectorChild([sys.executable, str(STAND_IN)], dict, said.append)


def fed(one: ConnectorChild, line: bytes, told: Callable[[], bool]) -> None:
    """Look after the child, which has this line, until that was told."""
    while not told():
        one.look(line)
        time.sleep(0.01)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_a_line_is_written_once_and_again_when_it_changes(told: Path) -> None:
    one = child([])
    for line in (b"first\n", b"first\n", b"second\n"):
        fed(one, line, lambda line=line: line.decode().strip() in lines(told))  # type: ignore[misc]
    assert lines(told) == ["", "first", "second"]
    pid = one.pid
    one.look(None)
    assert one.pid is None and pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_line_longer_than_the_pipe_arrives_whole(told: Path) -> None:
    one, line = child([]), b"x" * 1_000_000
    fed(one, line + b"\n", lambda: lines(told)[1:] == [line.decode()])
    one.stop()


def test_a_node_that_dies_is_started_again_and_told_everything(
    told: Path, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setenv("CONNECTOR_DIES_AT", "die")
    said: list[str] = []
    one = child(said)
    fed(one, b"die\n", lambda: lines(told).count("die") == 2)
    one.stop()
    assert any("ended with status 3" in line for line in said)


@pytest.mark.usefixtures("database")
def test_the_command_says_whether_it_is_wanted() -> None:
    out = StringIO()
    call_command("connector", "--wanted", stdout=out)
    offers_set(actor=OPERATOR, connection=make_connection(), drafts=[offer()])
    call_command("connector", "--wanted", stdout=out)
    assert out.getvalue().split() == ["no", "yes"]


@pytest.mark.usefixtures("database")
def test_the_command_opens_keys_into_the_pipe_alone(told: Path, monkeypatch: MonkeyPatch) -> None:
    connection = make_connection()
    offers_set(actor=OPERATOR, connection=connection, drafts=[offer()])
    key_add(actor=OPERATOR, connection=connection, secret=SECRET)
    monkeypatch.setattr(command, "LOOK_SECONDS", 0.01)
    argv: list[str] = []

    def started(wanted: list[str], *rest: object) -> ConnectorChild:
        argv.extend(wanted)
        return ConnectorChild([sys.executable, str(STAND_IN)], *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(command, "ConnectorChild", started)

    class Ending(threading.Event):
        """Asks to stop as soon as the node was told."""

        def is_set(self) -> bool:
            return bool(lines(told)[1:])

    monkeypatch.setattr(command, "Event", Ending)
    call_command("connector", "--gateway", "ws://127.0.0.1:1", stdout=StringIO())
    credential, *rest = lines(told)
    assert credential.startswith("node_sluice_") and SECRET in rest[0]
    assert SECRET not in " ".join(argv)
    told_so = "-m inference --engine hosted --name connector --pool providers --gateway"
    assert argv[1:] == [*told_so.split(), "ws://127.0.0.1:1"]
    file = Path(settings.DATA_DIR) / "secrets" / "connector-credential"
    assert file.read_text().strip() == credential and file.stat().st_mode & 0o777 == 0o600
    assert len(node_credential_active(node_name="connector")) == 1
    file.unlink()
