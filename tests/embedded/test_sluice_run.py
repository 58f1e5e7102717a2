"""`manage.py sluice run` as a stranger meets it: a real process, a real node, a clean end."""

import http.client
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from controlplane.embedded.processes import wait_until
from tests.support.loopback import HOST
from tests.support.servers import make_data_folder
from tests.support.sluice_run import (
    STOP_SECONDS_MAX,
    Started,
    environment,
    manage,
    running,
)

# Some minutes where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

GONE_SECONDS_MAX = 60.0


@pytest.fixture
def data() -> Iterator[Path]:
    with make_data_folder() as folder:
        yield Path(folder)


def demo_env(data: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in (data / "demo.env").read_text().splitlines())
    return {name: value for name, _, value in pairs}


CHAT = {"model": "sluice-5m", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}
EMBED = {"model": "all-minilm-l6-v2", "input": "Hi"}


def ask(
    started: Started,
    key: str,
    path: str = "/v1/chat/completions",
    body: dict[str, Any] = CHAT,
    gateway: int = 0,
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(HOST, started.port + gateway, timeout=30)
    connection.request(
        "POST",
        path,
        json.dumps(body),
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer


def lives(process: psutil.Process) -> bool:
    """Whether it still does anything; an orphan that has ended waits for init to take note."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_first_start_answers_second_keeps_its_data_and_nothing_is_left(data: Path) -> None:
    with running(data) as first:
        env = demo_env(data)
        assert env["SLUICE_URL"] == f"http://{HOST}:{first.port}"
        assert (data / "demo.env").stat().st_mode & 0o777 == 0o600
        assert first.text.count(env["SLUICE_KEY"]) == 2
        assert "/setup/" in first.text
        status, answer = ask(first, env["SLUICE_KEY"])
        assert status == 200, answer
        assert answer["usage"]["completion_tokens"] > 0
        family = first.family()
        names = [" ".join(process.cmdline()) for process in family]
        assert not [name for name in names if "node_sluice_" in name or env["SLUICE_KEY"] in name]
        again = subprocess.run(
            manage("run"), env=environment(data), capture_output=True, text=True, check=False
        )
        assert again.returncode == 1
        assert "Sluice is already running" in again.stderr
        first.process.send_signal(signal.SIGINT)
        assert first.process.wait(timeout=STOP_SECONDS_MAX) == 0
    assert not [process for process in family if lives(process)]
    with running(data, "--embed", "--gateways", "2") as second:
        assert env["SLUICE_KEY"] not in second.text
        assert f"http://{HOST}:{second.port + 1}/v1" in second.text
        for gateway in range(2):
            assert ask(second, env["SLUICE_KEY"], gateway=gateway)[0] == 200
        status, answer = ask(second, env["SLUICE_KEY"], "/v1/embeddings", EMBED)
        assert (status, len(answer["data"][0]["embedding"])) == (200, 384)


def test_a_killed_supervisor_leaves_nothing_that_stop_does_not_end(data: Path) -> None:
    with running(data) as started:
        family = started.family()
        started.process.kill()
        started.process.wait(timeout=STOP_SECONDS_MAX)
        status = subprocess.run(
            manage("status"), env=environment(data), capture_output=True, text=True, check=True
        )
        assert "processes are not restarted" in status.stdout and "worker" in status.stdout
        stop = subprocess.run(
            manage("stop"), env=environment(data), capture_output=True, text=True, check=True
        )
        assert "gateway" in stop.stdout
        assert "postgres" in stop.stdout
        # A helper of an ended child, such as a resource tracker, goes a moment after it.
        assert wait_until(lambda: not any(map(lives, family)), seconds=GONE_SECONDS_MAX)
