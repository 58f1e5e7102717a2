"""What `sluice doctor` looks at on this machine, each finding with what to do about it."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psycopg
import redis
from django.conf import settings
from django.db import Error, connection

from controlplane.embedded.layout import (
    LayoutError,
    embedded_layout,
    postgres_folder,
    redis_program,
)
from controlplane.embedded.poolers import POOLED, POOLED_FIX, pooled_by_transaction
from controlplane.embedded.ports import is_free
from controlplane.embedded.processes import RunFile, living
from controlplane.embedded.redis_places import redis_pool, redis_trouble

PYTHON_MIN = (3, 11)
# All tests run on the first; the hot path's run on the others.
PYTHON_TESTED_MAX = (3, 13)
DISK_MIB_MIN = 2_048
POSTGRES_MIN = 15
REDIS_MIN = (6, 2)
REDIS_S_MAX = 3.0
OTHERS = 0o077
# After as long a secret counts as old, and an overlap as forgotten.
SECRET_DAYS_MAX, OVERLAP_DAYS_MAX = 365, 30
# A random one of 32 characters has far more different ones.
SECRET_CHARS_MIN, SECRET_LETTERS_MIN = 32, 12
DAY_S = 86_400
GIB, MIB = 2**30, 2**20


class DoctorFinding(NamedTuple):
    """`fix` is empty where all is well."""

    subject: str
    told: str
    fix: str = ""


def findings(host: str, port: int) -> list[DoctorFinding]:
    """All that was looked at, for a start on this port."""
    data = Path(settings.DATA_DIR)
    run = RunFile(data).read()
    runs = run is not None and living(run.supervisor) is not None
    return [
        _python(sys.version_info[:2]),
        _disk(data),
        _port(host, port, runs),
        _postgres(data, runs),
        _redis(data, runs),
        *_secrets(data),
    ]


def servers() -> list[DoctorFinding]:
    """Whether PostgreSQL and Redis answer, and are new enough."""
    return [_postgres(Path(settings.DATA_DIR), True), _redis(Path(settings.DATA_DIR), True)]


def _python(version: tuple[int, ...]) -> DoctorFinding:
    told, newest = ".".join(map(str, version)), ".".join(map(str, PYTHON_TESTED_MAX))
    if version < PYTHON_MIN:
        return DoctorFinding("Python", told, "Install Python 3.11 or newer.")
    untested = version > PYTHON_TESTED_MAX
    return DoctorFinding("Python", told, f"Tested up to {newest}: use that." if untested else "")


def _disk(data: Path) -> DoctorFinding:
    place = next(folder for folder in (data, *data.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    low = free < DISK_MIB_MIN * MIB
    fix = f"Make {DISK_MIB_MIN} MiB free, or set SLUICE_DATA to another disk." if low else ""
    return DoctorFinding("disk", f"{free / GIB:.1f} GiB free in {data}", fix)


def _port(host: str, port: int, runs: bool) -> DoctorFinding:
    subject = f"port {port}"
    if is_free(host, port):
        return DoctorFinding(subject, f"free on {host}")
    if runs:
        return DoctorFinding(subject, f"in use on {host}; Sluice is running")
    return DoctorFinding(subject, f"in use on {host}", "Choose another: sluice run --port PORT.")


def _postgres(data: Path, runs: bool) -> DoctorFinding:
    if settings.EMBEDDED_DATABASE and not runs:
        return _private("PostgreSQL", lambda: postgres_folder(embedded_layout(data)))
    fix = "Start it, and check DATABASE_URL; `sluice bootstrap_db` makes the roles."
    if settings.EMBEDDED_DATABASE:
        fix = f"Read {data}/log/postgres.log."
    try:
        with connection.cursor() as cursor:
            cursor.execute("SHOW server_version_num")
            major = int(cursor.fetchone()[0]) // 10_000
        pooled = pooled_by_transaction()
    except (Error, psycopg.Error) as error:
        return DoctorFinding("PostgreSQL", str(error).strip().splitlines()[0], fix)
    finally:
        connection.close()
    if pooled:
        return DoctorFinding("PostgreSQL", f"{' and '.join(pooled)}: {POOLED}", POOLED_FIX)
    old = major < POSTGRES_MIN
    return DoctorFinding(
        "PostgreSQL", f"{major}, answers", f"Use {POSTGRES_MIN} or newer." if old else ""
    )


def _redis(data: Path, runs: bool) -> DoctorFinding:
    if settings.EMBEDDED_REDIS and not runs:
        return _private("Redis", lambda: redis_program(embedded_layout(data)))
    fix = "Start it, and check REDIS_URL and its password."
    if settings.EMBEDDED_REDIS:
        fix = f"Read {data}/log/redis.log."
    try:
        pool = redis_pool(settings.REDIS_URL, socket_timeout=REDIS_S_MAX)
        with redis.Redis.from_pool(pool) as client:
            client.ping()
            # The private one's rules refuse INFO to everybody; its version is known.
            version = "" if settings.EMBEDDED_REDIS else str(client.info("server")["redis_version"])
    except (redis.RedisError, OSError, ValueError) as error:
        return DoctorFinding("Redis", redis_trouble(settings.REDIS_URL, error), fix)
    old = version and tuple(map(int, version.split(".")[:2])) < REDIS_MIN
    told = f"{version}, answers" if version else "answers"
    return DoctorFinding("Redis", told, "Use 6.2 or newer." if old else "")


def _private(name: str, program: Callable[[], Path]) -> DoctorFinding:
    """Of a server that `sluice run` starts: whether its program is there."""
    try:
        found = program()
    except LayoutError as error:
        return DoctorFinding(name, "its program is missing", str(error))
    return DoctorFinding(name, f"not running; `sluice run` starts {found}")


def _secrets(data: Path) -> Iterator[DoctorFinding]:
    folder = Path(settings.SECRETS_DIR)
    files = [folder, *sorted(folder.glob("*"))] if folder.is_dir() else []
    demo = data / "demo.env"
    files += [demo] if demo.exists() else []
    wide = [path for path in files if path.stat().st_mode & OTHERS]
    yield from _values([path for path in files if path.is_file() and path != demo])
    for path in wide:
        mode, wanted = path.stat().st_mode & 0o777, "700" if path.is_dir() else "600"
        fix = f"chmod {wanted} {path}; if others could read it, replace what is in it."
        yield DoctorFinding("secrets", f"{path} has mode {mode:o}", fix)
    if not wide:
        yield DoctorFinding("secrets", f"{folder} is for its owner alone")


def _values(files: Sequence[Path]) -> Iterator[DoctorFinding]:
    """Secrets that are weak, shared or old, and overlaps that nobody has ended."""
    named = {path.name: path.read_text().strip() for path in files if path.suffix == ""}
    given = settings.SECRETS_FROM_VARIABLES
    named |= {name: os.environ.get(variable, "") for name, variable in given.items()}
    for name, value in named.items():
        others = [other for other in named if other < name and named[other] == value]
        if len(value) < SECRET_CHARS_MIN or len(set(value)) < SECRET_LETTERS_MIN:
            yield DoctorFinding("secrets", f"{name} is weak", _replace(name))
        elif others:
            yield DoctorFinding("secrets", f"{name} is the same as {others[0]}", _replace(name))
    for path in files:
        days = int((time.time() - path.stat().st_mtime) / DAY_S)
        if path.suffix == ".before" and days > OVERLAP_DAYS_MAX and path.stat().st_size:
            fix = f"sluice secrets settle {path.stem}"
            told = f"{path.stem} has had an earlier value beside it for {days} days"
            yield DoctorFinding("secrets", told, fix)
        elif not path.suffix and days > SECRET_DAYS_MAX:
            yield DoctorFinding("secrets", f"{path.name} is {days} days old", _replace(path.name))


def _replace(name: str) -> str:
    return f"sluice secrets rotate {name}, or replace it where it is set (docs/operations.md)."
