"""The databases that tests get: real, migrated, fresh each time, and never the developer's."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import redis
from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import connection
from django.utils import timezone

from controlplane.embedded.layout import REDIS_PROGRAMS, postgres_folder, redis_program
from controlplane.embedded.redis_server import RedisServer
from tests.support.embedded import PASSWORD, fresh_layout
from tests.support.servers import OTHER_POSTGRES, Servers, Watchdog


def test_each_test_connects_as_the_app_role(database: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_user, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user"
        )
        assert cursor.fetchone() == ("sluice_app", False, False)


@pytest.mark.parametrize("turn", [1, 2])
def test_what_one_test_writes_another_does_not_see(database: str, turn: int) -> None:
    assert not Session.objects.exists()
    Session.objects.create(session_key=str(turn), session_data="", expire_date=timezone.now())


def test_redis_is_real_and_empty(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set("left", "over")


def test_the_servers_are_of_the_releases_that_were_asked_for(
    servers: Servers, database: str, redis_url: str
) -> None:
    folder = os.environ.get(OTHER_POSTGRES, str(postgres_folder(servers.layout) / "bin"))
    told = subprocess.check_output([f"{folder}/postgres", "--version"], text=True)
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        assert cursor.fetchone()[0].split()[0] == told.split()[2]
    program = str(redis_program(servers.layout))
    told = subprocess.check_output([program, "--version"], text=True)
    with redis.Redis.from_url(redis_url) as client:
        found = client.info("server")
    assert f" v={found.get('valkey_version', found['redis_version'])} " in told
    if asked := shutil.which(REDIS_PROGRAMS[0]):
        assert program == asked


def test_the_data_folder_belongs_to_this_run() -> None:
    assert Path(settings.DATA_DIR).name.startswith("sluice-")
    assert Path(settings.DATA_DIR) != settings.BASE_DIR / "var"


def test_a_killed_run_leaves_no_server_and_no_folder() -> None:
    notes: list[str] = []
    with fresh_layout() as layout:
        server = RedisServer(layout, password=PASSWORD, say=notes.append)
        server.start()
        Watchdog(layout.data).let_go()
        assert not server.alive
        assert not layout.data.exists()
        server.stop()
