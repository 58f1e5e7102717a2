"""A master of Redis, its replica, and a Sentinel that watches both and asks for a password."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from tests.support.loopback import HOST, reserve_port
from tests.support.tls import Authority
from tests.support.waiting import wait_for

MASTER = "sluice"
SENTINEL_PASSWORD = "a Sentinel's own"
DOWN_AFTER_MS = 500


@dataclass(frozen=True)
class Watched:
    """How they are run: by this program, with this password of master and replica, and by TLS
    alone where there is an authority."""

    program: Path
    folder: Path
    password: str
    authority: Authority | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def running(self) -> Iterator[int]:
        """All three, until the block ends; the Sentinel's port."""
        plain = ('save ""', f"requirepass {self.password}", f"masterauth {self.password}")
        with ExitStack() as all_of:
            first = all_of.enter_context(self._server(*plain))
            second = all_of.enter_context(self._server(*plain, f"replicaof {HOST} {first}"))
            port = all_of.enter_context(
                self._server(
                    f'requirepass "{SENTINEL_PASSWORD}"',
                    f"sentinel monitor {MASTER} {HOST} {first} 1",
                    f"sentinel auth-pass {MASTER} {self.password}",
                    f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}",
                    f"sentinel failover-timeout {MASTER} 5000",
                    sentinel=True,
                )
            )
            wait_for(lambda: self._replica(port) == second, "replica")
            yield port

    def says(self, port: int, *words: str, password: str) -> object:
        """What a server or Sentinel answers; None while it does not."""
        try:
            with self._client(port, password) as client:
                return client.execute_command(*words)
        except redis.RedisError:
            return None

    def master(self, sentinel: int) -> int:
        """The port of whom the Sentinel calls master."""
        with self._client(sentinel) as client:
            return int(client.sentinel_get_master_addr_by_name(MASTER)[1])

    def _replica(self, sentinel: int) -> int:
        with self._client(sentinel) as client:
            found = client.sentinel_slaves(MASTER)
        alive = (each for each in found if each["master-link-status"] == "ok")
        return next((int(each["port"]) for each in alive), 0)

    def _client(self, port: int, password: str = SENTINEL_PASSWORD) -> Any:
        tls: dict[str, Any] = {}
        if self.authority:
            tls = {"ssl": True, "ssl_ca_certs": str(self.authority.ca)}
        return redis.Redis(HOST, port, password=password, decode_responses=True, **tls)

    @contextmanager
    def _server(self, *lines: str, sentinel: bool = False) -> Iterator[int]:
        port = reserve_port()
        file = self.folder / f"{port}.conf"
        listens = (f"bind {HOST}", *self._listening(port), f"dir {self.folder}")
        file.write_text("\n".join((*listens, *lines)) + "\n")
        argv = [str(self.program), str(file), *(["--sentinel"] if sentinel else [])]
        password = SENTINEL_PASSWORD if sentinel else self.password
        with subprocess.Popen(
            argv, env={**os.environ, **self.variables}, stdout=subprocess.DEVNULL
        ) as process:
            try:
                wait_for(lambda: self.says(port, "PING", password=password), "answer of Redis")
                yield port
            finally:
                process.kill()

    def _listening(self, port: int) -> tuple[str, ...]:
        if self.authority is None:
            return (f"port {port}",)
        ours = self.authority
        return (
            "port 0", f"tls-port {port}", "tls-auth-clients no", "tls-replication yes",
            f"tls-cert-file {ours.certificate}", f"tls-key-file {ours.key}",
            f"tls-ca-cert-file {ours.ca}",
        )  # fmt: skip
