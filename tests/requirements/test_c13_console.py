"""C13: the console does all of it: keys, models, organizations, wallets, a check from afar."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests.support.loopback import HOST
from tests.support.servers import make_data_folder
from tests.support.sluice_run import Started, environment, running
from tests.support.waiting import wait_for
from tests.support.warm_console import WarmConsole, warm_console

pytestmark = pytest.mark.timeout(600)

COMMAND_SECONDS_MAX = 120.0
CHAT = {"model": "sluice-5m", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}
OF_DEMO = ("--organization", "Demo")


def sluice(data: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "controlplane", *words],
        env=environment(data, **variables),
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
    )


def told(console: WarmConsole, *words: str) -> list[dict[str, Any]]:
    done = console(*words, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def refused(console: WarmConsole, *words: str) -> str:
    done = console(*words)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    return done.stderr


def status(started: Started, key: str) -> int:
    connection = http.client.HTTPConnection(HOST, started.port, timeout=30)
    head = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(CHAT), head)
        return connection.getresponse().status
    finally:
        connection.close()


def _keys(console: WarmConsole, data: Path, started: Started) -> str:
    (made,) = told(console, "keys", "create", "nightly", *OF_DEMO, "--model", "sluice-5m")
    wait_for(lambda: status(started, made["secret"]) == 200, "the new key")
    (newer,) = told(console, "keys", "rotate", made["id"], "--overlap-hours", "1")
    wait_for(lambda: status(started, newer["secret"]) == 200, "its successor")
    assert status(started, made["secret"]) == 200
    (ended,) = told(console, "keys", "revoke", made["id"], "--reason", "a test")
    assert ended["state"] == "revoked"
    wait_for(lambda: status(started, made["secret"]) == 401, "its revocation")
    listed = told(console, "keys", "list", *OF_DEMO)
    assert {made["id"], newer["id"]} <= {each["id"] for each in listed}
    assert not any("secret" in each for each in listed)
    table = sluice(data, "keys", "list", *OF_DEMO).stdout
    assert table.splitlines()[0].split()[:2] == ["id", "label"] and newer["id"] in table
    assert "orgs list" in refused(console, "keys", "list", "--organization", "Nobody")
    assert "has no project" in refused(console, "keys", "create", "a", *OF_DEMO, "--project", "b")
    assert "Must be an id" in refused(console, "keys", "revoke", "nonsense")
    assert "not found" in refused(console, "keys", "create", "a", *OF_DEMO, "--model", "none")
    secret: str = newer["secret"]
    return secret


def _money(console: WarmConsole) -> None:
    assert "sluice-5m" in {each["name"] for each in told(console, "models", "list")}
    (demo,) = (each for each in told(console, "orgs", "list") if each["name"] == "Demo")
    assert demo["balance_nano"] is None and told(console, "wallet", "list") == []
    top_up = ("wallet", "give", "Demo", "--usd", "25.00", "--reason", "transfer 17")
    assert "--becomes-prepaid" in refused(console, *top_up)
    (grant,) = told(console, *top_up, "--becomes-prepaid")
    assert (grant["amount_nano"], grant["state"]) == (25 * 10**9, "booked")
    (shown,) = told(console, "wallet", "show", "Demo")
    (listed,) = told(console, "wallet", "list")
    assert shown["balance_nano"] == listed["balance_nano"] == 25 * 10**9


def _preflight(started: Started, key: str, folder: Path) -> None:
    """By somebody who has an address and a key, and neither database nor settings."""
    file, nowhere = folder / "chat.json", folder / "nothing"
    file.write_text(json.dumps(CHAT))
    address = f"http://{HOST}:{started.port}"
    # Would stop any command that reads settings.
    broken = {"SLUICE_ROLE": "nonsense", "DATABASE_URL": "nonsense", "PATH": os.environ["PATH"]}
    ask = ("preflight", str(file), "--url", address)
    done = sluice(nowhere, *ask, "--json", **broken, SLUICE_API_KEY=key)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["would_run"]
    assert not nowhere.exists()
    without = sluice(nowhere, *ask, **broken)
    assert without.returncode == 1 and "Set SLUICE_API_KEY" in without.stderr
    wrong = sluice(nowhere, *ask, **broken, SLUICE_API_KEY="sk_wrong")
    assert wrong.returncode == 1 and "401" in wrong.stderr
    away = sluice(nowhere, *ask[:-1], "http://127.0.0.1:1", **broken, SLUICE_API_KEY=key)
    assert away.returncode == 1 and "cannot be reached" in away.stderr


def test_the_console_does_all_of_it(tmp_path: Path) -> None:
    with make_data_folder() as name:
        data = Path(name)
        with (
            running(data) as started,
            warm_console(environment(data), settings.BASE_DIR) as console,
        ):
            key = _keys(console, data, started)
            _preflight(started, key, tmp_path)
            _money(console)
