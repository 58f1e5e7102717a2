"""Redis behind Sentinel: the master dies, and every client of ours finds the next one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from django.conf import settings
from django.test import override_settings

from controlplane.composed.livemap import dials
from controlplane.embedded.layout import redis_program
from controlplane.embedded.redis_places import SENTINEL_SCHEME
from tests.product.traffic import ask, make_body, open_client
from tests.support.loopback import HOST, reserve_port
from tests.support.product import Plan, Product, running_product
from tests.support.sentinels import MASTER, SENTINEL_PASSWORD, Watched
from tests.support.servers import Servers
from tests.support.stores import doctor_says, redis_login
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(300)

# What follows a master's name in an address.
LOGIN = f"sentinel_password={quote(SENTINEL_PASSWORD)}"


@pytest.fixture
def watched(servers: Servers, tmp_path: Path) -> Watched:
    return Watched(redis_program(servers.layout), tmp_path, settings.REDIS_PASSWORD)


@pytest.fixture
def sentinel(watched: Watched) -> Iterator[int]:
    with watched.running() as port:
        yield port


@pytest.fixture
def product(servers: Servers, sentinel: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Product]:
    # The first of the two is not there.
    place = f"{redis_login()}{HOST}:{reserve_port()},{HOST}:{sentinel}"
    monkeypatch.setenv("REDIS_URL", f"{SENTINEL_SCHEME}://{place}/{MASTER}/0?{LOGIN}")
    with running_product(servers, Plan(sweeps=True)) as product:
        yield product


def _worker_lives() -> bool:
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "sluice", "probe", "worker"]
    return subprocess.run(command, capture_output=True).returncode == 0


async def test_every_client_follows_the_master(
    product: Product, watched: Watched, sentinel: int
) -> None:
    await followed(product, watched, sentinel)

    other = os.environ["REDIS_URL"].replace(LOGIN, "sentinel_password=wrong")
    told = doctor_says({"REDIS_URL": other})
    assert "Connection refused" in told and "invalid username-password" in told


async def followed(product: Product, watched: Watched, sentinel: int) -> None:
    """The product is served by the next master once the first is gone."""
    wait_for(_worker_lives, "worker")
    before = watched.master(sentinel)
    watched.says(before, "SHUTDOWN", "NOSAVE", password=watched.password)
    wait_for(lambda: watched.master(sentinel) != before, "failover")
    wait_for(lambda: product.readiness()["limits_shared"], "shared limits")
    wait_for(_worker_lives, "worker after the failover")
    async with open_client(product.urls[0]) as client:
        assert (await ask(client, product.key, make_body())).whole
    assert "Redis: " in doctor_says({}) and "away" not in doctor_says({})


def test_the_live_map_dials_the_master_whichever_sentinel_is_away(
    watched: Watched, sentinel: int
) -> None:
    away = reserve_port()
    places = f"{HOST}:{away},{HOST}:{sentinel}"
    for named, port in ((places, watched.master(sentinel)), (f"{HOST}:{away}", away)):
        url = f"{SENTINEL_SCHEME}://{redis_login()}{named}/{MASTER}/0?{LOGIN}"
        with override_settings(REDIS_URL=url):
            found = dials.redis_target()
        assert (found.kind, found.host, found.port) == (dials.REDIS, HOST, port)
