"""C13: backed up under load, everything killed, restored elsewhere: to the nano, and it goes on."""

import http.client
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from controlplane.composed.backups.archive import (
    MANIFEST,
    PARTIAL,
    AccountSums,
    backups,
    read_manifest,
)
from tests.support.loopback import HOST
from tests.support.servers import make_data_folder
from tests.support.sluice_run import Started, environment, manage, running

# Real processes are started three times, and some minutes pass where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

COMMAND_SECONDS_MAX = 180.0
CLIENTS = 2
PASSPHRASE = "a passphrase of the tests only"
SEALING = {"SLUICE_BACKUP_PASSPHRASE": PASSPHRASE}
# What the worker does every few minutes.
CHAINED = [
    *manage()[:-1],
    *("shell", "-c", "from controlplane.core.audit.chain import audit_chain; assert audit_chain()"),
]
CHAT = {"model": "sluice-5m", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}


def chat(started: Started, key: str) -> int:
    connection = http.client.HTTPConnection(HOST, started.port, timeout=30)
    head = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(CHAT), head)
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


@contextmanager
def load(started: Started, key: str) -> Iterator[list[int]]:
    """Clients that ask one request after another; what they were answered so far."""
    answers: list[int] = []
    over = threading.Event()

    def client() -> None:
        while not over.is_set():
            with suppress(OSError, http.client.HTTPException):
                answers.append(chat(started, key))

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        over.set()
        for thread in threads:
            thread.join()


def sluice(data: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        manage(*arguments),
        env=environment(data, **variables),
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
    )


def key_of(data: Path) -> str:
    pairs = (line.partition("=") for line in (data / "demo.env").read_text().splitlines())
    return next(value for name, _, value in pairs if name == "SLUICE_KEY")


def kill(started: Started) -> None:
    """Everything at once, as a power cut would."""
    family = started.family()
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, timeout=COMMAND_SECONDS_MAX)


@contextmanager
def folders(count: int) -> Iterator[list[Path]]:
    made = [make_data_folder() for _ in range(count)]
    try:
        yield [Path(folder.name) for folder in made]
    finally:
        for folder in made:
            folder.cleanup()


def posted(accounts: dict[str, AccountSums]) -> tuple[int, int]:
    debits = sum(int(each.debit_nano) for each in accounts.values())
    return debits, sum(int(each.credit_nano) for each in accounts.values())


def _backed_up_under_load(data: Path, kept: Path) -> str:
    """A backup while clients are served, then the end of everything; the key they used."""
    with running(data) as started:
        key = key_of(data)
        assert chat(started, key) == 200
        subprocess.run(CHAINED, env=environment(data), check=True, timeout=COMMAND_SECONDS_MAX)
        with load(started, key) as answers:
            made = sluice(data, "backup", str(kept), "--keep", "1", **SEALING)
            assert made.returncode == 0, made.stderr
            again = sluice(data, "backup", str(kept), "--keep", "1", **SEALING)
            assert again.returncode == 0, again.stderr
            kill(started)
        assert 200 in answers
    return key


def test_what_was_backed_up_under_load_is_restored_to_the_nano_and_goes_on() -> None:
    with folders(3) as (first, second, kept):
        key = _backed_up_under_load(first, kept)
        (backup,) = backups(kept)
        assert not list(kept.glob(f"*{PARTIAL}"))
        facts = read_manifest(backup).facts
        debits, credits = posted(facts.accounts)
        assert debits == credits > 0 and facts.audit_head is not None
        restored = sluice(second, "restore", str(kept), **SEALING)
        assert restored.returncode == 0, restored.stdout + restored.stderr
        assert "verify_ledger and verify_audit find nothing" in restored.stdout
        with running(second) as started:
            assert chat(started, key) == 200
            refused = sluice(second, "restore", str(kept), **SEALING)
            assert refused.returncode == 1 and "is running" in refused.stderr
            later = sluice(second, "backup", str(kept), **SEALING)
            assert later.returncode == 0, later.stderr
        grown = read_manifest(backups(kept)[-1]).facts
        assert posted(grown.accounts)[0] > debits
        assert all(grown.tables[name] >= rows for name, rows in facts.tables.items()
                   if name.startswith("transfers_"))  # fmt: skip
        full = sluice(second, "restore", str(kept), **SEALING)
        assert full.returncode == 1 and "is not empty" in full.stderr
        for name in ("key-pepper", "content-key", "connection-key", "factor-key"):
            places = [data / "secrets" / name for data in (first, second)]
            assert len({place.read_text() for place in places}) == 1
        assert not any(b"key-pepper" in file.read_bytes() for file in backup.rglob("*.sealed"))


def test_a_backup_is_refused_before_anything_is_touched() -> None:
    with folders(2) as (data, kept):
        told: Any = sluice(data, "backup", str(kept))
        assert told.returncode == 1 and "SLUICE_BACKUP_PASSPHRASE" in told.stderr
        assert backups(kept) == [] and not (data / "postgres").exists()
        nothing = sluice(data, "restore", str(kept), **SEALING)
        assert nothing.returncode == 1 and MANIFEST not in nothing.stderr
        assert "contains none" in nothing.stderr and not (data / "postgres").exists()
