"""Certificates of one's own on servers that speak TLS themselves: Debian's PostgreSQL and Redis.

Run by `make test-stores`; the default suite has TLS in front of the embedded ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
import redis
from django.conf import settings
from psycopg.conninfo import make_conninfo

from controlplane.bridge.limits.redis_link import REPLY, RedisLink
from controlplane.bridge.postgres.lane import PostgresLane, PreparedCall
from controlplane.embedded.layout import Layout
from controlplane.gateway.nodes.measured.times import LearnedBound
from tests.support.embedded import PASSWORD, fresh_layout
from tests.support.loopback import HOST, reserve_port
from tests.support.servers import OTHER_POSTGRES, OtherPostgres
from tests.support.tls import NAME, Authority, make_authority
from tests.support.waiting import until, wait_for

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1:]
DEBIAN = settings.BASE_DIR / ".stores/debian"
DEBIAN_LIBRARIES = {"LD_LIBRARY_PATH": str(DEBIAN / "usr/lib/x86_64-linux-gnu")}
STORED = "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    """Ours, and a stranger's."""
    ours, other = (make_authority(tmp_path_factory.mktemp(name)) for name in ("ours", "other"))
    return ours, other


@pytest.fixture
def postgres(
    authorities: tuple[Authority, Authority], monkeypatch: pytest.MonkeyPatch
) -> Iterator[int]:
    monkeypatch.setenv(OTHER_POSTGRES, str(PROGRAMS[0]))
    port = reserve_port()
    with fresh_layout() as layout:
        files = _own_files(layout, authorities[0])
        options = {
            "listen_addresses": HOST, "port": str(port), "fsync": "off", "ssl": "on",
            "ssl_cert_file": str(files.certificate), "ssl_key_file": str(files.key),
        }  # fmt: skip
        server = OtherPostgres(layout, password=PASSWORD, say=lambda _: None, settings=options)
        # The name of the socket has the port.
        dsn = make_conninfo(server.superuser_dsn, port=port)
        monkeypatch.setattr(OtherPostgres, "superuser_dsn", dsn)
        server.start()
        yield port
        server.stop()


def _own_files(layout: Layout, made: Authority) -> Authority:
    """Where the server's account may read its key, and nobody else."""
    key, certificate = (layout.sockets / each.name for each in (made.key, made.certificate))
    shutil.copy(made.key, key)
    shutil.copy(made.certificate, certificate)
    key.chmod(0o600)
    if layout.account is not None:
        os.chown(key, layout.account.uid, layout.account.gid)
        os.chown(certificate, layout.account.uid, layout.account.gid)
    return Authority(made.ca, certificate, key)


class OneCall:
    """A source of one call."""

    def __init__(self) -> None:
        self.answers: list[bytes | None] = []
        self._call: PreparedCall | None = PreparedCall(
            statement=b"stored", parameters=list, failed=lambda *_: None, lost=lambda: None,
            answered=self.answers.append, durable=True,
        )  # fmt: skip

    def connected(self) -> None:
        """Nothing comes before."""

    def next_call(self) -> PreparedCall | None:
        call, self._call = self._call, None
        return call


async def test_a_lane_and_a_session_speak_tls_with_postgresql(
    postgres: int, authorities: tuple[Authority, Authority]
) -> None:
    ours, other = authorities
    told = make_conninfo(
        host=NAME, port=postgres, user="postgres", password=PASSWORD, dbname="postgres",
        sslmode="verify-full", sslrootcert=str(ours.ca),
    )  # fmt: skip
    source = OneCall()
    lane = PostgresLane("tests", told, source, {b"stored": STORED.encode()})
    lane.start()
    await until(lambda: source.answers)
    await lane.close()
    assert source.answers[0] and source.answers[0].startswith(b"TLSv1")
    async with await psycopg.AsyncConnection.connect(told) as connection:
        assert await (await connection.execute(STORED)).fetchone()
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        await psycopg.AsyncConnection.connect(make_conninfo(told, sslrootcert=str(other.ca)))


@pytest.fixture
def redis_place(authorities: tuple[Authority, Authority], tmp_path: Path) -> Iterator[str]:
    """The address of a Redis that speaks TLS alone, up to the file of its authority."""
    ours, port = authorities[0], reserve_port()
    lines = (f"bind {HOST}", "port 0", f"tls-port {port}", "tls-auth-clients no", f"dir {tmp_path}",
             f"tls-cert-file {ours.certificate}", f"tls-key-file {ours.key}",
             f"tls-ca-cert-file {ours.ca}", "requirepass secret")  # fmt: skip
    (tmp_path / "redis.conf").write_text("\n".join(lines) + "\n")
    place = f"rediss://:secret@{NAME}:{port}/0?ssl_cert_reqs=required&ssl_ca_certs="
    with subprocess.Popen(
        [str(DEBIAN / "usr/bin/redis-server"), str(tmp_path / "redis.conf")],
        env=DEBIAN_LIBRARIES,
        stdout=subprocess.DEVNULL,
    ) as process:
        try:
            wait_for(lambda: _pings(f"{place}{ours.ca}"), "answer of Redis")
            yield place
        finally:
            process.kill()


async def test_a_link_speaks_tls_with_redis(
    redis_place: str, authorities: tuple[Authority, Authority]
) -> None:
    ours, other = authorities
    bound = LearnedBound(REPLY)
    link = await _linked(f"{redis_place}{ours.ca}", bound)
    answers: list[list[int] | None] = []
    link.call([], b"", answers.append)
    await until(lambda: answers)
    assert answers == [[1]]
    link.close()
    with pytest.raises(OSError):
        await RedisLink.connect(f"{redis_place}{other.ca}", b"return {1}", bound)


async def _linked(place: str, bound: LearnedBound) -> RedisLink:
    """One that is there, however busy the machine."""
    while True:
        with suppress(TimeoutError):
            return await RedisLink.connect(place, b"return {1}", bound)


def _pings(url: str) -> bool:
    try:
        with redis.Redis.from_url(url) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False
