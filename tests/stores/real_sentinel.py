"""Sentinels, a master and its replica that speak TLS alone: Debian's Redis.

Run by `make test-stores`; the default suite has them without TLS.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from controlplane.embedded.redis_places import SECURE_SENTINEL_SCHEME
from inference.tls import CA_VARIABLE
from tests.stores.real_tls import DEBIAN, DEBIAN_LIBRARIES
from tests.stores.test_sentinel import LOGIN, followed
from tests.support.loopback import HOST, reserve_port
from tests.support.product import Plan, Product, running_product
from tests.support.sentinels import MASTER, Watched
from tests.support.servers import Servers
from tests.support.stores import doctor_says, redis_login
from tests.support.tls import make_authority

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    program = DEBIAN / "usr/bin/redis-server"
    return Watched(
        program, tmp_path, settings.REDIS_PASSWORD, make_authority(tmp_path), DEBIAN_LIBRARIES
    )


@pytest.fixture
def sentinel(watched: Watched, servers: Servers) -> Iterator[int]:
    with watched.running() as port:
        yield port


@pytest.fixture
def product(
    servers: Servers, watched: Watched, sentinel: int, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Product]:
    assert watched.authority
    place = f"{redis_login()}{HOST}:{reserve_port()},{HOST}:{sentinel}"
    login = f"sentinel_username=default&{LOGIN}"
    monkeypatch.setenv("REDIS_URL", f"{SECURE_SENTINEL_SCHEME}://{place}/{MASTER}/0?{login}")
    monkeypatch.setenv(CA_VARIABLE, str(watched.authority.ca))
    with running_product(servers, Plan(sweeps=True)) as product:
        yield product


async def test_every_client_follows_the_master_by_tls(
    product: Product, watched: Watched, sentinel: int, tmp_path: Path
) -> None:
    await followed(product, watched, sentinel)
    other = tmp_path / "other"
    other.mkdir()
    assert "certificate verify failed" in doctor_says({CA_VARIABLE: str(make_authority(other).ca)})
