"""PgBouncer before PostgreSQL: served through its sessions, refused where it lends transactions.

Run by `make test-stores`, which unpacks Debian's package.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from django.conf import settings

from controlplane.core.database_roles import password_of
from tests.product.traffic import ask, make_body, open_client
from tests.support.loopback import HOST, reserve_port
from tests.support.product import Plan, Product, running_product
from tests.support.servers import Servers, make_data_folder
from tests.support.stores import database_urls, doctor_says
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(300)

DEBIAN = settings.BASE_DIR / ".stores/debian"
LIBRARIES = DEBIAN / "usr/lib/x86_64-linux-gnu"


@contextmanager
def bouncing(servers: Servers, mode: str) -> Iterator[dict[str, str]]:
    """PgBouncer in this mode until the block ends; the variables that lead through it."""
    port = reserve_port()
    users = {(each["USER"], password_of(each)) for each in settings.DATABASES.values()}
    with make_data_folder() as name:
        folder = Path(name)
        (folder / "users.txt").write_text("".join(f'"{u}" "{p}"\n' for u, p in sorted(users)))
        (folder / "bouncer.ini").write_text(
            f"[databases]\n* = host={servers.layout.sockets}\n[pgbouncer]\nlisten_addr={HOST}\n"
            f"listen_port={port}\nunix_socket_dir=\nauth_type=scram-sha-256\n"
            f"auth_file={folder}/users.txt\npool_mode={mode}\n"
        )
        account = servers.layout.account
        process = subprocess.Popen(
            [str(DEBIAN / "usr/sbin/pgbouncer"), str(folder / "bouncer.ini")],
            env={"LD_LIBRARY_PATH": str(LIBRARIES)},
            user=None if account is None else account.uid,
            stderr=subprocess.DEVNULL,
        )
        stores = database_urls(f"{HOST}:{port}")
        try:
            wait_for(lambda: _answers(stores["DATABASE_URL"]), "answer of PgBouncer")
            yield stores
        finally:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture
def transactions(servers: Servers, database: str) -> Iterator[dict[str, str]]:
    with bouncing(servers, "transaction") as stores:
        yield stores


@pytest.fixture
def product(servers: Servers) -> Iterator[tuple[Product, dict[str, str]]]:
    with (
        bouncing(servers, "session") as stores,
        running_product(servers, Plan(gateway_env=lambda _: stores)) as product,
    ):
        yield product, stores


async def test_requests_are_served_through_its_sessions(
    product: tuple[Product, dict[str, str]],
) -> None:
    running, stores = product
    async with open_client(running.urls[0]) as client:
        assert (await ask(client, running.key, make_body())).whole
    assert "ok       PostgreSQL: 1" in doctor_says(stores)


def test_one_that_lends_transactions_is_refused_by_name(transactions: dict[str, str]) -> None:
    told = doctor_says(transactions)
    assert "problem  PostgreSQL: DATABASE_URL and DATABASE_GATEWAY_URL: a pooler" in told
    started = subprocess.run(
        [sys.executable, str(settings.BASE_DIR / "manage.py"), "bootstrap_db"],
        env={**os.environ, **transactions},
        capture_output=True,
        text=True,
    )
    assert started.returncode == 1 and "pool_mode = session" in started.stderr
