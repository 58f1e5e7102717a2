"""C13: the database is brought to this release under load, no request fails, and a newer one is
refused.

There is no release before the first, so the test takes the newest table change back, as an
installation that lacks it would be.
"""

import subprocess
from pathlib import Path

import pytest

from tests.requirements.test_c13_backup import (
    COMMAND_SECONDS_MAX,
    chat,
    folders,
    key_of,
    load,
)
from tests.support.sluice_run import environment, manage, running
from tests.support.waiting import wait_for

# Real processes are started, and some minutes pass where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

LAST, APP = "0004_pool_plans", "fleet"
TAKEN_BACK = (
    "DROP TABLE pool_plans",
    f"DELETE FROM django_migrations WHERE app = '{APP}' AND name = '{LAST}'",
)
LATER = f"INSERT INTO django_migrations (app, name, applied) VALUES ('{APP}', '0999_later', now())"


def command(data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*manage()[:-1], *words],
        env=environment(data),
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
    )


def execute(data: Path, *statements: str) -> None:
    """As the owner of the tables, on the private server."""
    code = (
        "from django.db import connections\n"
        "with connections['owner'].cursor() as cursor:\n"
        f"    for statement in {statements!r}: cursor.execute(statement)\n"
    )
    done = command(data, "shell", "-c", code)
    assert done.returncode == 0, done.stderr


def test_an_upgrade_under_load_fails_no_request_and_keeps_the_books() -> None:
    with folders(1) as (data,), running(data) as started:
        key = key_of(data)
        assert chat(started, key) == 200
        with load(started, key) as answers:
            execute(data, *TAKEN_BACK)
            checked = command(data, "upgrade", "--check")
            assert checked.returncode == 0 and f"{APP}.{LAST}" in checked.stdout
            done = command(data, "upgrade")
            assert done.returncode == 0, done.stderr
            began = answers.count(200)
            wait_for(lambda: answers.count(200) > began, "an answer after the upgrade")
            again = command(data, "upgrade")
            assert again.returncode == 0 and "0 migrations to apply" in again.stdout
        # The demo's key has a limit of its own, which is no failure.
        assert set(answers) <= {200, 429}
        verified = command(data, "verify_ledger")
        assert verified.returncode == 0, verified.stdout
        execute(data, LATER)
        refused = command(data, "upgrade", "--check")
        assert refused.returncode == 1 and f"{APP}.0999_later" in refused.stderr
