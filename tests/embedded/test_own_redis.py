"""REDIS_URL names a Redis of one's own, with a password and a database: all three uses work."""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis
from django.conf import settings

from controlplane.embedded.binaries import redis_program
from controlplane.embedded.processes import wait_until
from controlplane.embedded.redis_server import RULES
from tests.support.embedded import fresh_layout
from tests.support.loopback import HOST, reserve_port
from tests.support.servers import make_data_folder
from tests.support.sluice_run import environment, running

PASSWORD = "p@ss/word:1"
DATABASE = 3
WAIT_SECONDS_MAX = 30.0
# Sends a message through the channel layer, asks the worker for a roll-up, limits the demo's key.
USES = """
import asyncio
from channels.layers import get_channel_layer
from controlplane.celery import app
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.scope import organization_scope
from controlplane.quotas.services import rate_limit_set
from controlplane.tenants.models import ApiKey, Organization

async def told():
    layer = get_channel_layer()
    channel = await layer.new_channel()
    await layer.group_add("watchers", channel)
    await layer.group_send("watchers", {"type": "news", "text": "hello"})
    return (await layer.receive(channel))["text"]

assert asyncio.run(told()) == "hello"
with organization_scope(Organization.objects.values_list("id", flat=True)):
    key = ApiKey.objects.get()
rate_limit_set(actor=OPERATOR, subject=key, requests_per_min=1, tokens_per_min=None)
app.send_task("telemetry.roll_up")
"""
ROLLED_UP = """
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("SELECT telemetry_rollup_last(300) IS NOT NULL")
    print(cursor.fetchone()[0])
"""


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


def ask(port: int, method: str, path: str, **headers: str) -> tuple[int, Any]:
    """Status and decoded body."""
    body = {"model": "sluice-5m", "messages": [{"role": "user", "content": "Hi"}]}
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    connection.request(method, path, json.dumps(body), headers)
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer


def test_limits_channels_and_jobs_use_the_redis_that_the_url_names() -> None:
    with make_data_folder() as folder, own_redis() as address:
        data, url = Path(folder), f"{address}/{DATABASE}"
        with running(data, "--no-node", REDIS_URL=url) as started:
            assert ask(started.port, "GET", "/readyz")[1]["limits_shared"]
            servers = {process.name() for process in started.family()}
            assert not [name for name in servers if "redis" in name], "no private Redis beside it"
            shell(data, USES, url)
            key = (data / "demo.env").read_text().split("SLUICE_KEY=")[1].strip()

            def code() -> str:
                path = "/v1/chat/completions"
                _, answer = ask(started.port, "POST", path, Authorization=f"Bearer {key}")
                return str(answer["error"]["code"])

            # No node serves here, which is found out after the limits were asked.
            assert code() == "no_node_available"
            assert wait_until(lambda: code() == "rate_limit_exceeded", seconds=WAIT_SECONDS_MAX)
            assert wait_until(
                lambda: shell(data, ROLLED_UP, url) == "True", seconds=WAIT_SECONDS_MAX
            )
            with redis.Redis.from_url(url) as used, redis.Redis.from_url(f"{address}/0") as other:
                assert list(used.scan_iter("sluice:{rate}:*"))
                assert not list(other.scan_iter())
