"""The starter of Redis: a private socket, a password, and a clean end."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from controlplane.embedded.layout import REDIS_PROGRAMS, Layout
from controlplane.embedded.processes import left_overs
from controlplane.embedded.redis_server import RedisServer
from tests.support.embedded import PASSWORD, fresh_layout


@pytest.fixture
def layout() -> Iterator[Layout]:
    with fresh_layout() as made:
        yield made


def ask(layout: Layout, password: str | None) -> bool:
    path, once = str(layout.redis_socket), Retry(NoBackoff(), 0)
    with redis.Redis(unix_socket_path=path, password=password, retry=once) as client:
        return bool(client.ping())


def test_answers_only_with_the_password_and_leaves_no_process(layout: Layout) -> None:
    server = RedisServer(layout, password=PASSWORD, say=print)
    server.start()
    try:
        assert ask(layout, PASSWORD)
        with pytest.raises(redis.AuthenticationError):
            ask(layout, None)
    finally:
        server.stop()
    assert all(left_overs(program, layout.redis) == [] for program in REDIS_PROGRAMS)


@pytest.mark.parametrize("words", [
    "CONFIG GET dir", "CONFIG SET dir /tmp", "DEBUG SLEEP 0", "MODULE LOAD /tmp/x.so", "KEYS *",
    "FLUSHALL", "FLUSHDB", "SAVE", "BGSAVE", "SHUTDOWN", "ACL LIST", "SLAVEOF localhost 1",
    "SCRIPT FLUSH", "SCRIPT KILL", "MONITOR", "CLIENT KILL TYPE normal", "MIGRATE a 1 k 0 1",
    "EVAL return(1) 0",
])  # fmt: skip
def test_refuses_what_no_process_of_ours_needs(redis_url: str, words: str) -> None:
    # A few of them valkey refuses to everybody.
    refused = pytest.raises(redis.ResponseError, match="no permissions|command not allowed")
    with redis.Redis.from_url(redis_url) as client, refused:
        client.execute_command(*words.split())


def test_a_script_may_do_no_more_than_who_runs_it(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        digest = client.script_load("return redis.call('KEYS', '*')")
        with pytest.raises(redis.ResponseError, match="can't run|ACL failure"):
            client.evalsha(digest, 0)


def test_a_release_that_refuses_rules_of_what_it_does_not_know_is_spared_them(
    layout: Layout, tmp_path: Path
) -> None:
    program = tmp_path / "redis-server"
    for release, known in (("6.2.14", True), ("7.0.15", False), ("7.2.4", True)):
        program.write_text(f"#!/bin/sh\necho Redis server v={release} sha=0:0 bits=64\n")
        program.chmod(0o755)
        server = RedisServer(layout, password=PASSWORD, say=print)
        server._program = program
        assert (" +client|setinfo " in server._configuration()) is known


def test_starts_again_over_a_killed_one_and_over_a_forgotten_one(layout: Layout) -> None:
    said: list[str] = []
    first = RedisServer(layout, password=PASSWORD, say=said.append)
    first.start()
    first.kill()
    second = RedisServer(layout, password=PASSWORD, say=said.append)
    second.start()
    third = RedisServer(layout, password=PASSWORD, say=said.append)
    try:
        assert said == []
        third.start()
        assert said == ["ended a Redis left over from a killed run"]
        assert not second.alive
        assert ask(layout, PASSWORD)
    finally:
        third.stop()
        second.stop()
        first.stop()
