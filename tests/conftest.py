"""Fixtures that every test may ask for. Django is set up on a data folder of this run's own.

No server starts before a test asks for `servers`, `database`, `redis_url` or `client`.
"""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from tempfile import TemporaryDirectory

import django
import pytest
from django.conf import settings
from django.core import mail
from django.test import Client
from django.test.utils import setup_test_environment, teardown_test_environment
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from tests.suite import durations, lanes, order, summary
from tests.support.servers import (
    OTHER_POSTGRES,
    Servers,
    drop_database,
    make_data_folder,
    make_database,
    redis_door,
    start_servers,
)

# A busy machine is no defect: no example is timed, and none is given up because it came slowly.
hypothesis_settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("untimed")
DATA_FOLDER = pytest.StashKey[TemporaryDirectory[str]]()
# Else each process that a test starts would compile the whole product anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
if "PYTEST_XDIST_WORKER" in os.environ:
    # Threads of several processes would wait for each other at every product of tiny matrices.
    os.environ["OMP_NUM_THREADS"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `make test-durations` asks for."""
    parser.addoption(durations.OPTION, action="store_true", help="keep what each file took")


def pytest_configure(config: pytest.Config) -> None:
    """Before any settings are read: no test may see the developer's own data or servers."""
    if "controlplane.settings" in sys.modules:
        raise pytest.UsageError("The settings were read before the tests named their data folder.")
    folder = config.stash[DATA_FOLDER] = make_data_folder()
    for name in [name for name in os.environ if name.startswith(("SLUICE_", "DATABASE_"))]:
        if name != OTHER_POSTGRES:
            del os.environ[name]
    os.environ.pop("REDIS_URL", None)
    os.environ["SLUICE_DATA"] = folder.name
    # All tests call from one address, and many as one person.
    for name in ("CALLER", "ADDRESS", "DOOR"):
        os.environ[f"SLUICE_API_{name}_PER_MIN"] = "1000000"
    os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
    django.setup()
    # Passwords are slow to hash on purpose; `tests/tenants/test_accounts.py` has one as it is kept.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    setup_test_environment(debug=False)
    for plugin in (order, lanes, summary):
        config.pluginmanager.register(plugin)
    if config.getoption(durations.OPTION) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(durations.Recorder())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported stays for the whole run: no search for garbage looks through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave nothing behind."""
    teardown_test_environment()
    config.stash[DATA_FOLDER].cleanup()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """A real PostgreSQL with a migrated template, and a real Redis."""
    running = start_servers()
    yield running
    running.stop()


@pytest.fixture
def database(servers: Servers) -> Iterator[str]:
    """A fresh migrated database, reached as the app's role, and no mail; the value is its name."""
    make_database(servers.postgres)
    mail.outbox.clear()
    yield str(settings.DATABASES["default"]["NAME"])
    drop_database(servers.postgres)


@pytest.fixture
def redis_url(servers: Servers) -> str:
    """An empty Redis."""
    with redis_door() as door:
        door.flushall()
    return str(settings.REDIS_URL)


@pytest.fixture
def client(database: str) -> Client:
    """Django's test client on a fresh database."""
    return Client()
