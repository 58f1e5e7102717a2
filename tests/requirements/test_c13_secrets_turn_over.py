"""C13: every secret is replaced while the product serves, and nobody is turned away meanwhile."""

from __future__ import annotations

import http.client
import json
import subprocess
from pathlib import Path

import psycopg
import pytest

from controlplane.composed.secrets.rotation import NAMES, PASSWORDS, TURNING
from controlplane.embedded.layout import embedded_layout
from tests.support.loopback import HOST
from tests.support.servers import make_data_folder
from tests.support.sluice_run import Started, environment, manage, running

# Real processes are started twice.
pytestmark = pytest.mark.timeout(600)

COMMAND_SECONDS_MAX = 120.0
CHAT = {"model": "sluice-5m", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}
ROLES = {"postgres-app": "sluice_app", "postgres-owner": "sluice_owner"}


def sluice(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        manage(*arguments),
        env=environment(data),
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
    )


def done(data: Path, *arguments: str) -> str:
    result = sluice(data, *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def ask(started: Started, method: str, path: str, key: str = "", body: object = None) -> int:
    connection = http.client.HTTPConnection(HOST, started.port, timeout=30)
    head = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, json.dumps(body) if body else None, head if key else {})
        return connection.getresponse().status
    finally:
        connection.close()


def serves(started: Started, key: str) -> bool:
    """The gateway answers the key, and pages answer, which connect for each request."""
    chat = ask(started, "POST", "/v1/chat/completions", key, CHAT)
    return (chat, ask(started, "GET", "/sign-in")) == (200, 200)


def kept(data: Path, name: str) -> str:
    return (data / "secrets" / name).read_text().strip()


def signs_in(data: Path, role: str, password: str) -> bool:
    try:
        psycopg.connect(
            host=str(embedded_layout(data).sockets), dbname="sluice", user=role, password=password
        ).close()
    except psycopg.OperationalError:
        return False
    return True


def key_of(data: Path) -> str:
    pairs = (line.partition("=") for line in (data / "demo.env").read_text().splitlines())
    return next(value for name, _, value in pairs if name == "SLUICE_KEY")


def _rotate_all(data: Path, started: Started) -> str:
    """Replace each while it serves; the key that was made under the old pepper."""
    key = key_of(data)
    before = {name: kept(data, name) for name in NAMES}
    for name in NAMES:
        told = done(data, "secrets", "rotate", name)
        assert kept(data, name) != before[name] and before[name] not in told
        assert serves(started, key), name
    for name in TURNING:
        assert kept(data, f"{name}.before") == before[name]
    for name, role in ROLES.items():
        assert signs_in(data, role, kept(data, name)) and not signs_in(data, role, before[name])
    refused = sluice(data, "secrets", "settle", "factor-key")
    assert refused.returncode == 1 and "restart Sluice" in refused.stderr
    return key


def test_all_secrets_are_rotated_under_a_serving_product() -> None:
    folder = make_data_folder()
    with folder as name:
        data = Path(name)
        with running(data) as started:
            key = _rotate_all(data, started)
        with running(data) as started:
            assert serves(started, key)
            refused = sluice(data, "secrets", "settle", "key-pepper")
            assert refused.returncode == 1 and "were made before" in refused.stderr
            for each in TURNING:
                done(data, "secrets", "settle", each, "--yes")
                assert not (data / "secrets" / f"{each}.before").exists()
            assert "no earlier value" in done(data, "secrets", "settle", "redis")
            assert "secrets: " in done(data, "doctor")
        assert set(PASSWORDS) | set(TURNING) == set(NAMES)
