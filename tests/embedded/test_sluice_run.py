"""`manage.py sluice run` as a stranger meets it: a real process, a real node, a clean end; and
REDIS_URL names a Redis of one's own, with a password and a database: all three uses work.
"""

import http.client
import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import psutil
import pytest
import redis
from django.conf import settings

from controlplane.embedded.layout import REDIS_PROGRAMS, redis_program
from controlplane.embedded.processes import wait_until
from controlplane.embedded.redis_server import RULES
from tests.support.embedded import fresh_layout
from tests.support.loopback import HOST, reserve_port
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
WAIT_SECONDS_MAX = 30.0
PASSWORD = "p@ss/word:1"
DATABASE = 3
# Sends a message through the channel layer, asks the worker for a roll-up and waits for it, and
# makes a key with a limit, whose secret it prints.
USES = """
import asyncio, time
from channels.layers import get_channel_layer
from django.db import connection
from controlplane.celery import app
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import organization_scope
from controlplane.quotas.services import rate_limit_set
from controlplane.tenants.keys import KeyTerms
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.models import Organization, Project

async def told():
    layer = get_channel_layer()
    channel = await layer.new_channel()
    await layer.group_add("watchers", channel)
    await layer.group_send("watchers", {"type": "news", "text": "hello"})
    return (await layer.receive(channel))["text"]

def rolled_up():
    with connection.cursor() as cursor:
        cursor.execute("SELECT telemetry_rollup_last(300) IS NOT NULL")
        return cursor.fetchone()[0]

assert asyncio.run(told()) == "hello"
with organization_scope(Organization.objects.values_list("id", flat=True)):
    project = Project.objects.get()
made = apikey_create(actor=OPERATOR, project=project, label="limited", terms=KeyTerms())
rate_limit_set(actor=OPERATOR, subject=made.key, requests_per_min=1, tokens_per_min=None)
app.send_task("telemetry.roll_up")
ends = time.monotonic() + 30
while not rolled_up():
    assert time.monotonic() < ends
    time.sleep(0.1)
print(made.secret)
"""


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


class First(NamedTuple):
    """What a first start left, besides its data."""

    data: Path
    env: dict[str, str]
    text: str
    port: int
    mode: int
    answer: tuple[int, Any]
    commands: list[str]
    again: subprocess.CompletedProcess[str]
    status: int
    living: list[psutil.Process]


@pytest.fixture(scope="module")
def first() -> Iterator[First]:
    """One start on an empty folder, which is asked, and ended by a signal; its data are kept."""
    with make_data_folder() as folder:
        data = Path(folder)
        with running(data) as started:
            env = demo_env(data)
            answer = ask(started, env["SLUICE_KEY"])
            family = started.family()
            commands = started.commands()
            again = subprocess.run(
                manage("run"), env=environment(data), capture_output=True, text=True, check=False
            )
            started.process.send_signal(signal.SIGINT)
            status = started.process.wait(timeout=STOP_SECONDS_MAX)
        living = [process for process in family if lives(process)]
        mode = (data / "demo.env").stat().st_mode & 0o777
        yield First(
            data, env, started.text, started.port, mode, answer, commands, again, status, living
        )


def test_a_first_start_answers_and_nothing_is_left(first: First) -> None:
    key = first.env["SLUICE_KEY"]
    assert first.env["SLUICE_URL"] == f"http://{HOST}:{first.port}"
    assert first.mode == 0o600
    assert first.text.count(key) == 2
    assert "/setup/" in first.text
    assert re.search(r"s  the node runs on (native|torch|triton)", first.text)
    status, answer = first.answer
    assert status == 200, answer
    assert answer["usage"]["completion_tokens"] > 0
    assert not [line for line in first.commands if "node_sluice_" in line or key in line]
    assert first.again.returncode == 1
    assert "Sluice is already running" in first.again.stderr
    assert first.status == 0
    assert not first.living


def test_a_second_start_keeps_its_data_and_stop_ends_what_its_killed_supervisor_left(
    first: First,
) -> None:
    data, key = first.data, first.env["SLUICE_KEY"]
    with running(data, "--embed", "--gateways", "2") as started:
        assert key not in started.text
        assert f"http://{HOST}:{started.port + 1}/v1" in started.text
        for gateway in range(2):
            assert ask(started, key, gateway=gateway)[0] == 200
        status, answer = ask(started, key, "/v1/embeddings", EMBED)
        assert (status, len(answer["data"][0]["embedding"])) == (200, 384)
        family = started.family()
        started.process.kill()
        started.process.wait(timeout=STOP_SECONDS_MAX)
        told = subprocess.run(
            manage("status"), env=environment(data), capture_output=True, text=True, check=True
        )
        assert "processes are not restarted" in told.stdout and "worker" in told.stdout
        stop = subprocess.run(
            manage("stop"), env=environment(data), capture_output=True, text=True, check=True
        )
        assert "gateway" in stop.stdout
        assert "postgres" in stop.stdout
        # A helper of an ended child, such as a resource tracker, goes a moment after it.
        assert wait_until(lambda: not any(map(lives, family)), seconds=GONE_SECONDS_MAX)


def test_limits_channels_and_jobs_use_the_redis_that_the_url_names(first: First) -> None:
    with own_redis() as address:
        url = f"{address}/{DATABASE}"
        with running(first.data, "--no-node", REDIS_URL=url) as started:
            with urllib.request.urlopen(f"http://{HOST}:{started.port}/readyz") as answer:
                assert json.loads(answer.read())["limits_shared"]
            lines = started.commands()
            assert not [line for line in lines if any(name in line for name in REDIS_PROGRAMS)]
            limited = shell(first.data, USES, url)

            def code(key: str) -> str:
                return str(ask(started, key)[1]["error"]["code"])

            # No node serves here, which is found out after the limits were asked.
            assert code(first.env["SLUICE_KEY"]) == "no_node_available"
            assert wait_until(
                lambda: code(limited) == "rate_limit_exceeded", seconds=WAIT_SECONDS_MAX
            )
            with redis.Redis.from_url(url) as used, redis.Redis.from_url(f"{address}/0") as other:
                assert list(used.scan_iter("sluice:{rate}:*"))
                assert not list(other.scan_iter())


def manages(started: Started, data: Path, method: str, path: str, **body: Any) -> Any:
    """What the control plane's API answers to the operator."""
    token = (data / "secrets" / "operator-token").read_text().strip()
    connection = http.client.HTTPConnection(HOST, started.port, timeout=30)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request(method, f"/api/connections{path}", json.dumps(body), headers)
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    assert response.status < 300, answer
    return json.loads(answer or b"null")


def test_the_connector_runs_while_there_is_a_connection(first: First) -> None:
    with running(first.data, "--no-node") as started:

        def connects() -> bool:
            return any("controlplane connector" in line for line in started.commands())

        def asked(method: str, path: str, **body: Any) -> Any:
            return manages(started, first.data, method, path, **body)

        # A server that needs no key; nothing answers there, which is the connector's to find out.
        made = asked("POST", "", name="own", kind="other", url=f"http://{HOST}:1/v1")
        assert not connects()
        offer = {"upstream": "m", "model": "m", "context_window": 4_096, "output_max": 256}
        asked("PUT", f"/{made['id']}/models", models=[offer])
        assert wait_until(connects, seconds=WAIT_SECONDS_MAX)
        asked("DELETE", f"/{made['id']}")
        assert wait_until(lambda: not connects(), seconds=GONE_SECONDS_MAX)


@contextmanager
def own_redis() -> Iterator[str]:
    """A Redis behind a port, with the user that docs/operations.md tells to make and no other; the
    value is its address without the database.
    """
    port = reserve_port()
    with fresh_layout() as layout:
        user = f"user sluice on >{PASSWORD} {RULES}"
        lines = (f"port {port}", f"bind {HOST}", "user default off", user, 'save ""')
        with subprocess.Popen(
            [str(redis_program(layout)), "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd=layout.data,
        ) as process:
            try:
                assert process.stdin is not None
                process.stdin.write("\n".join(lines).encode())
                process.stdin.close()
                yield f"redis://sluice:{quote(PASSWORD, safe='')}@{HOST}:{port}"
            finally:
                process.terminate()


def shell(data: Path, code: str, url: str) -> str:
    """What a snippet prints in the product's own settings."""
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "shell", "-v", "0", "-c", code]
    env = environment(data, REDIS_URL=url)
    result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()
