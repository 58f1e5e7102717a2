"""Where a product of a test finds its PostgreSQL: addresses with the passwords of this run."""

import os
import subprocess
import sys
from collections.abc import Mapping
from urllib.parse import quote

from django.conf import settings

from controlplane.core.database_roles import password_of
from tests.support.loopback import reserve_port

VARIABLES = {
    "default": "DATABASE_URL", "owner": "DATABASE_OWNER_URL", "gateway": "DATABASE_GATEWAY_URL",
}  # fmt: skip


def database_urls(place: str, query: str = "") -> dict[str, str]:
    """The variables that name this run's database at `host:port`, or at several with commas."""
    # As of our own server: the first tokenizer that a node offers is taken.
    found = {"SLUICE_TRUST_FIRST_DIGEST": "true"}
    for alias, variable in VARIABLES.items():
        known = settings.DATABASES[alias]
        login = f"{known['USER']}:{quote(password_of(known), safe='')}"
        found[variable] = f"postgresql://{login}@{place}/{known['NAME']}?{query}"
    return found


def redis_login() -> str:
    """What stands before the @ of this run's Redis."""
    return f":{quote(settings.REDIS_PASSWORD, safe='')}@"


def doctor_says(stores: Mapping[str, str]) -> str:
    """What `sluice doctor` prints with these variables."""
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "sluice", "doctor"]
    told = subprocess.run(
        [*command, "--port", str(reserve_port())],
        env={**os.environ, **stores},
        capture_output=True,
        text=True,
    )
    return told.stdout + told.stderr
