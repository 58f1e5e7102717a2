"""C13: a base backup and the archived log bring the database back as it was at an instant."""

from __future__ import annotations

import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from controlplane.embedded.layout import embedded_layout
from controlplane.embedded.postgres import SUPERUSER
from tests.requirements.test_c13_backup import chat, folders, key_of
from tests.support.sluice_run import environment, manage, running
from tests.support.waiting import wait_for

# Real processes are started twice, and some minutes pass where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

COUNT, SWITCH = "SELECT count(*) FROM request_records", "SELECT pg_switch_wal()"


def test_the_database_comes_back_as_it_was_at_an_instant() -> None:
    with folders(2) as (data, kept):
        archive = {"SLUICE_WAL_ARCHIVE": str(kept / "wal")}

        def sluice(*words: str) -> str:
            done = subprocess.run(
                manage(*words), env=environment(data, **archive), capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        def requests() -> int:
            return int(asked(data, COUNT))

        with running(data, **archive) as started:
            key = key_of(data)
            assert chat(started, key) == 200
            wait_for(lambda: requests() == 1, "the request's row")
            sluice("backup", "--base", str(kept / "base"))
            time.sleep(1.0)
            early = datetime.now(UTC)
            time.sleep(1.0)
            assert chat(started, key) == 200
            wait_for(lambda: requests() == 2, "the request's row")
            time.sleep(1.0)
            until = datetime.now(UTC)
            time.sleep(1.0)
            assert chat(started, key) == 200
            wait_for(lambda: requests() == 3, "the row of a request that is to be undone")
            asked(data, SWITCH)
        place = database(data)
        # Too early at first, and then from the same base again.
        for number, instant in enumerate((early, until)):
            place.rename(place.with_name(f"lost-{number}"))
            told = sluice("restore", str(kept / "base"), "--until", instant.isoformat())
            assert "verify_ledger and verify_audit find nothing" in told
        with running(data, **archive) as started:
            assert requests() == 2, "what came after the instant is not there"
            assert chat(started, key) == 200


def asked(data: Path, statement: LiteralString) -> Any:
    """As who sees every row, whatever the policies."""
    password = (data / "secrets" / "postgres-superuser").read_text().strip()
    sockets = str(embedded_layout(data).sockets)
    with psycopg.connect(
        host=sockets, dbname="sluice", user=SUPERUSER, password=password
    ) as connection:
        return connection.execute(statement).fetchone()[0]  # type: ignore[index]


def database(data: Path) -> Path:
    pointer = data / "servers-path"
    return Path(pointer.read_text().strip() if pointer.exists() else data) / "postgres"
