"""Redis behind Sentinel: the master dies, and every client of ours finds the next one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis
from django.conf import settings
from django.test import override_settings

from controlplane.composed.livemap import dials
from controlplane.embedded.layout import redis_program
from controlplane.embedded.redis_places import SENTINEL_SCHEME
from tests.product.traffic import ask, make_body, open_client
from tests.support.loopback import HOST, reserve_port
from tests.support.product import Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.stores import doctor_says, redis_login
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(300)

MASTER = "sluice"
DOWN_AFTER_MS = 500


@contextmanager
def server(servers: Servers, folder: Path, *lines: str, sentinel: bool = False) -> Iterator[int]:
    """One server or Sentinel with this configuration until the block ends; its port."""
    port = reserve_port()
    file = folder / f"{port}.conf"
    file.write_text("\n".join((f"bind {HOST}", f"port {port}", f"dir {folder}", *lines)) + "\n")
    argv = [str(redis_program(servers.layout)), str(file), *(["--sentinel"] if sentinel else [])]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: _says(port, "PING", secret=not sentinel), "answer of Redis")
            yield port
        finally:
            process.kill()


def _says(port: int, *words: str, secret: bool = True) -> object:
    """What it answers; None while it does not."""
    password = settings.REDIS_PASSWORD if secret else None
    try:
        with redis.Redis(HOST, port, password=password) as client:
            return client.execute_command(*words)
    except redis.RedisError:
        return None


@pytest.fixture
def sentinel(servers: Servers, tmp_path: Path) -> Iterator[int]:
    """The port of a Sentinel that watches a master and its replica."""
    secret = settings.REDIS_PASSWORD
    plain = ('save ""', f"requirepass {secret}", f"masterauth {secret}")
    with ExitStack() as all_of:
        first = all_of.enter_context(server(servers, tmp_path, *plain))
        second = all_of.enter_context(
            server(servers, tmp_path, *plain, f"replicaof {HOST} {first}")
        )
        watched = (
            f"sentinel monitor {MASTER} {HOST} {first} 1",
            f"sentinel auth-pass {MASTER} {secret}",
            f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {MASTER} 5000",
        )
        port = all_of.enter_context(server(servers, tmp_path, *watched, sentinel=True))
        wait_for(lambda: _port_of(port, "REPLICAS") == second, "replica")
        yield port


def _port_of(sentinel: int, whose: str) -> int:
    with redis.Redis(HOST, sentinel, decode_responses=True) as client:
        if whose == "REPLICAS":
            return next((int(each["port"]) for each in client.sentinel_slaves(MASTER)
                         if each["master-link-status"] == "ok"), 0)  # fmt: skip
        return int(client.sentinel_get_master_addr_by_name(MASTER)[1])


@pytest.fixture
def product(servers: Servers, sentinel: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Product]:
    place = f"{HOST}:{reserve_port()},{HOST}:{sentinel}"
    monkeypatch.setenv("REDIS_URL", f"{SENTINEL_SCHEME}://{redis_login()}{place}/{MASTER}/0")
    with running_product(servers, Plan(sweeps=True)) as product:
        yield product


def _worker_lives() -> bool:
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "sluice", "probe", "worker"]
    return subprocess.run(command, capture_output=True).returncode == 0


async def test_every_client_follows_the_master(product: Product, sentinel: int) -> None:
    wait_for(_worker_lives, "worker")
    before = _port_of(sentinel, "MASTER")
    _says(before, "SHUTDOWN", "NOSAVE")
    wait_for(lambda: _port_of(sentinel, "MASTER") != before, "failover")
    wait_for(lambda: product.readiness()["limits_shared"], "shared limits")
    wait_for(_worker_lives, "worker after the failover")
    async with open_client(product.urls[0]) as client:
        assert (await ask(client, product.key, make_body())).whole
    assert "Redis: " in doctor_says({}) and "away" not in doctor_says({})


def test_the_live_map_dials_the_master_whichever_sentinel_is_away(sentinel: int) -> None:
    away = reserve_port()
    places = f"{HOST}:{away},{HOST}:{sentinel}"
    for named, port in ((places, _port_of(sentinel, "MASTER")), (f"{HOST}:{away}", away)):
        url = f"{SENTINEL_SCHEME}://{redis_login()}{named}/{MASTER}/0"
        with override_settings(REDIS_URL=url):
            found = dials.redis_target()
        assert (found.kind, found.host, found.port) == (dials.REDIS, HOST, port)
