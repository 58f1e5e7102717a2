"""S6: each service of docker/compose.yaml is given the secrets that it needs and no other, and each
real process starts with those alone.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from django.conf import settings

from controlplane.composed.secrets.rotation import TURNING
from controlplane.core.jobs.heartbeat import is_alive, worker_name
from controlplane.core.jobs.lives import BEAT, WORKER
from tests.requirements.test_s6_docker import ROOT, compose, filled, ours, value
from tests.support.loopback import HOST, reserve_port
from tests.support.product import Child, fresh_data
from tests.support.servers import Servers
from tests.support.waiting import wait_for

# Some minutes where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

# Who may read what, file by file.
GIVEN = {
    "setup": {"postgres-owner", "postgres-app", "postgres-gateway"},
    "gateway": {
        "postgres-gateway", "redis", "key-pepper", "cache-salt", "playground-token",
        "content-key", "metrics-token",
    },
    "web": {
        "postgres-app", "redis", "django", "key-pepper", "playground-token", "factor-key",
        "connection-key", "content-key", "webhook-key", "operator-token", "metrics-token",
    },
    "worker": {"postgres-app", "redis", "webhook-key"},
    "beat": {"redis"},
    "connector": {"postgres-app", "key-pepper", "connection-key"},
}  # fmt: skip
# Those of which earlier values count, too, while they are replaced.
REPLACED = set(TURNING) - {"redis"}
# Services that run other images.
OTHERS = {
    "postgres": {"postgres-superuser", "postgres-owner"},
    "redis": {"redis"},
    "node": {"enrol-token"},
    "node-gpu": {"enrol-token"},
    "prometheus": {"metrics-token"},
    "alertmanager": {"alert-webhook"},
    "grafana": {"grafana"},
}
# These may share the volume `data`; the others have at most one of their own name.
SHARED = {"setup", "web", "worker"}
# A first page takes its time where many processes start.
ANSWER_S_MAX = 30.0
ROW = re.compile(r"^\| `([a-z-]+)` \| (?:password in )?`(\w+)` \|(.*)\|$", re.MULTILINE)


def secrets_of(service: dict[str, Any]) -> set[str]:
    return set(service.get("secrets", []))


def before(names: set[str]) -> set[str]:
    """Files of earlier values that belong to these."""
    return {f"{name}.before" for name in names & REPLACED}


def test_each_service_is_given_what_it_needs_and_nothing_else() -> None:
    services = ours()
    given = {name: names | before(names) for name, names in GIVEN.items()}
    assert {name: secrets_of(service) for name, service in services.items()} == given
    for name, service in services.items():
        environment = service["environment"]
        assert environment["SLUICE_ROLE"] == name
        assert environment["SLUICE_SECRETS"] == "/run/secrets"
        # Nothing secret by another way: no password in an address, no variable that holds a secret.
        for variable, text in environment.items():
            assert "@" not in str(text), (name, variable)
            assert not re.search(r"SECRET_|TOKEN|KEY|PASSWORD", variable), (name, variable)
        assert "env_file" not in service and "configs" not in service
        volumes = {volume.partition(":")[0] for volume in service.get("volumes", [])}
        assert volumes <= ({"data"} if name in SHARED else {name}), name
    others = {name: made for name, made in compose()["services"].items() if name not in services}
    assert {name: secrets_of(made) for name, made in others.items() if secrets_of(made)} == OTHERS
    assert set(compose()["secrets"]) == set().union(*given.values(), *OTHERS.values())


def test_the_document_tells_who_needs_what() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    section = text.partition("\n## Secrets\n")[2].partition("\n## ")[0]
    (head,) = re.findall(r"^\| file \| variable \|(.*)\|$", section, re.MULTILINE)
    roles = [cell.strip(" `") for cell in head.split("|")]
    told: dict[str, set[str]] = {role: set() for role in roles}
    for file, _, cells in ROW.findall(section):
        for role, cell in zip(roles, cells.split("|"), strict=True):
            if cell.strip():
                told[role].add(file)
    assert told == GIVEN


class Installation:
    """The services' real processes, each with a folder of its own secrets, as compose has them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        database, redis = settings.DATABASES["default"], settings.REDIS_URL
        self._kept = settings.DATA_DIR / "secrets"
        self._addresses = {
            "DATABASE_URL": f"postgres:///{database['NAME']}?host={database['HOST']}",
            "REDIS_URL": re.sub(r"//.*@", "//", redis),
        }

    def environment(self, name: str, without: str = "") -> dict[str, str]:
        """What a service's process is started with: compose's variables, and the test's places."""
        given, data = self._folder / f"{name}-secrets{without}", self._folder / name
        for folder in (given, data):
            folder.mkdir(exist_ok=True)
        for file in GIVEN[name] - {without}:
            (given / file).write_text((self._kept / file).read_text())
        told = ours()[name]["environment"]
        own = {key: filled(str(text), {}) for key, text in told.items()}
        return {
            "PATH": os.environ["PATH"],
            **own,
            **self._addresses,
            "SLUICE_SECRETS": str(given),
            "SLUICE_DATA": str(data),
            "SLUICE_ADVERTISE_URL": "",
        }

    def run(self, name: str, *words: str, without: str = "") -> subprocess.CompletedProcess[str]:
        """One command in a service's place."""
        return subprocess.run(
            [sys.executable, *words],
            env=self.environment(name, without),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    def child(self, name: str, argv: list[str]) -> Child:
        """A service's process, with nothing of this one's environment."""
        environment = self.environment(name)
        bare = ["env", "-i", *(f"{key}={text}" for key, text in environment.items())]
        return Child(name, [*bare, sys.executable, "-m", *argv], {}, self._folder / f"{name}.log")


@pytest.fixture
def installation(servers: Servers, tmp_path: Path) -> Iterator[Installation]:
    with fresh_data(servers):
        yield Installation(tmp_path)


def test_every_process_starts_with_its_own_secrets_alone(
    installation: Installation, tmp_path: Path
) -> None:
    lines = ours()["setup"]["command"][-1].splitlines()
    commands = [shlex.split(line)[2:] for line in lines]
    # In one process, to be quicker.
    calls = "; ".join(f"call_command(*{words})" for words in commands)
    asks = f"from django.core.management import call_command; {calls}"
    done = installation.run("setup", "manage.py", "shell", "-c", asks)
    assert done.returncode == 0, done.stderr
    ports = {"gateway": reserve_port(), "web": reserve_port()}
    served = value("Dockerfile", "CMD")
    argv = {
        name: [word.replace("8000", str(port)).replace("0.0.0.0", HOST) for word in served]
        for name, port in ports.items()
    }
    argv |= {name: ours()[name]["command"] for name in (WORKER, BEAT)}
    children = [installation.child(name, words) for name, words in argv.items()]
    try:
        for child in children:
            child.start()
        # Beat's first sign is the first job that is due, some seconds from its start.
        _check_what_is_not_given(installation)
        for child in children:
            wait_for(partial(alive, child, ports), f"sign of life of {child.name}")
        page = httpx2.get(
            f"http://{HOST}:{ports['web']}/sign-in", trust_env=False, timeout=ANSWER_S_MAX
        )
        assert page.status_code == 200 and "csrfmiddlewaretoken" in page.text
        token = (settings.DATA_DIR / "secrets" / "metrics-token").read_text().strip()
        for port in ports.values():
            address = f"http://{HOST}:{port}/metrics"
            scraped = httpx2.get(
                address,
                trust_env=False,
                headers={"authorization": f"Bearer {token}"},
                timeout=ANSWER_S_MAX,
            )
            assert scraped.status_code == 200 and "sluice_" in scraped.text
    finally:
        for child in children:
            child.begin_stop()
        for child in children:
            child.stop()
            print(f"--- {child.name}\n{child.log[-4_000:]}")
    # Nobody has made a secret of its own.
    assert list(tmp_path.glob("*/secrets")) == []


def alive(child: Child, ports: dict[str, int]) -> bool:
    """Whether a process serves, or has given its sign of life; fails where it has ended."""
    assert child.alive, child.log
    if child.name in (WORKER, BEAT):
        return is_alive(child.name, worker_name() if child.name == WORKER else "")
    try:
        address = f"http://{HOST}:{ports[child.name]}/readyz"
        return httpx2.get(address, trust_env=False).status_code == 200
    except httpx2.HTTPError:
        return False


def _check_what_is_not_given(installation: Installation) -> None:
    """It stops the start, and what is not needed is no setting."""
    lacking = installation.run("gateway", "manage.py", "check", without="key-pepper")
    assert lacking.returncode == 1 and "key-pepper is missing" in lacking.stderr
    wanted = installation.run("connector", "manage.py", "connector", "--wanted")
    assert (wanted.returncode, wanted.stdout.strip()) == (0, "no"), wanted.stderr
    asks = "from django.conf import settings; print(settings.KEY_PEPPER)"
    refused = installation.run("worker", "manage.py", "shell", "-c", asks)
    assert refused.returncode == 1 and "no attribute 'KEY_PEPPER'" in refused.stderr
