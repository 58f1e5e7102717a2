"""A whole Sluice for browser tests: real servers, real ASGI application, echo node, real rows.

Everything is a process of its own on loopback, started and stopped here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from typing import TypeVar

from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher, make_password
from django.db import connections
from django.utils import timezone

from controlplane.catalog.services import ModelDraft, PriceDraft, model_create, price_publish
from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.services import node_credential_create
from controlplane.hosts.models import Deployment, Host
from controlplane.routing.services import RuleVersions
from controlplane.tenants.keys import CreatedKey, apikey_create
from controlplane.tenants.models import User
from tests.browser.demo import furnish
from tests.browser.history import write_history
from tests.core.samples import Things, make_things
from tests.support.fleet import MODEL, make_model
from tests.support.loopback import reserve_port
from tests.support.month import seal_month, seed_month
from tests.support.people import Cast, give_password, make_cast
from tests.support.rules import generates

PASSWORD = "correct-horse-battery-staple"
START_S_MAX = 180.0
STOP_S_MAX = 60.0
NODE = "node-1"
TOKENS_PER_S = 40

T = TypeVar("T")


@dataclass
class Filled:
    """Who and what is in a site; `credential` is of its node, blank where it has none."""

    cast: Cast
    key: CreatedKey
    requests: list[uuid.UUID]
    credential: str
    things: Things | None = None


@dataclass
class Site:
    """The running product and who is in it; it searches a hub at `hub_port`, if one is there."""

    port: int
    filled: Filled
    hub_port: int

    @property
    def cast(self) -> Cast:
        """Its people."""
        return self.filled.cast

    @property
    def key(self) -> CreatedKey:
        """A key of Acme."""
        return self.filled.key

    @property
    def requests(self) -> list[uuid.UUID]:
        """What the key has sent, oldest first."""
        return self.filled.requests

    @property
    def url(self) -> str:
        """Where the pages and the gateway are."""
        return f"http://127.0.0.1:{self.port}"


def elsewhere(work: Callable[[], T]) -> T:
    """Use the ORM in a thread of its own, on connections that end with it.

    Those that a test's own thread made under the driver's event loop outlive their database.
    """

    def work_and_close() -> T:
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work_and_close).result()


def fill(past: str) -> Filled:
    """People, a model with a price, a key, a node's credential; and a past of that name.

    Alice runs the installation, too.
    """
    if past == "things":
        return _fill_things()
    cast = make_cast()
    for user in (cast.alice, cast.bob, cast.charlie):
        give_password(user, PASSWORD)
        # The pages are in a process of its own, which has the product's hashers.
        user.password = _hashed()
        user.save(update_fields=["password"])
    User.objects.filter(id=cast.alice.id).update(is_staff=True)
    draft = ModelDraft(
        name=MODEL,
        pool="default",
        context_window=4_096,
        output_tokens_default=64,
        output_tokens_max=1_024,
    )
    model = model_create(actor=OPERATOR, draft=draft)
    prices = PriceDraft(input_pico=150_000, cached_pico=15_000, output_pico=600_000)
    price_publish(actor=OPERATOR, model=model, draft=prices)
    node = node_credential_create(actor=OPERATOR, name=NODE, pool="default")
    key = apikey_create(actor=cast.alice, project=cast.project, label="nightly summaries")
    apikey_create(actor=cast.alice, project=cast.project, label="search agents", lifetime_days=None)
    requests: list[uuid.UUID] = []
    if past == "month":
        seed_month(cast)
        seal_month()
    else:
        requests = write_history(cast, key.key, MODEL)
        furnish(cast, key.key)
    return Filled(cast, key, requests, node.secret)


def report_hosts() -> None:
    """Hosts tell what they have, and what should run on them does not fit."""
    now, told = timezone.now(), {"cores": 32, "load": 1.5, "memory": 2**38, "memory_free": 2**37}
    gpu = {"name": "H200", "memory": 2**37, "memory_free": 2**33, "use": 0.97, "celsius": 71}
    Host.objects.update(enrolled_at=now, seen_at=now, inventory={**told, "gpus": [gpu]})
    Deployment.objects.update(message="It does not fit. Needed: 141 GiB. Free: host-1 8 GiB.")


def _fill_things() -> Filled:
    """One of each, of which none moves: a host that reports, a deployment that does not fit."""
    things = make_things()
    furnish(things.cast, things.key.key)
    User.objects.filter(id=things.cast.alice.id).update(is_staff=True)
    report_hosts()
    rules = RuleVersions(OPERATOR)
    rules.canary_start(rules.draft_create([generates("canary", MODEL)]), 100)
    return Filled(things.cast, things.key, [things.request], "", things)


@cache
def _hashed() -> str:
    return make_password(PASSWORD, hasher=PBKDF2PasswordHasher())


class Processes:
    """The application and its node."""

    def __init__(self, folder: Path, credential: str) -> None:
        self._folder = folder
        self._credential = credential
        self._running: list[subprocess.Popen[bytes]] = []
        self.port, self.hub_port = reserve_port(), reserve_port()

    def start(self) -> None:
        """Serve, then let the node dial in, if there is one; returns when both are ready."""
        environment = {**os.environ, "SLUICE_ROLE": "all", "SLUICE_LOG_FORMAT": "plain"}
        environment["SLUICE_HUB_URL"] = f"http://127.0.0.1:{self.hub_port}"
        self._spawn(
            ["uvicorn", "controlplane.asgi:application", "--host", "127.0.0.1", "--port",
             str(self.port), "--http", "controlplane.bridge.http.connection:SocketProtocol", "--ws",
             "controlplane.bridge.fleet.frames:FrameProtocol", "--no-proxy-headers"],
            environment,
            "web.log",
        )  # fmt: skip
        self._until('"ready":true')
        if not self._credential:
            return
        model = make_model(self._folder)
        self._spawn(
            ["inference", "--engine", "echo", "--gateway", f"ws://127.0.0.1:{self.port}", "--name",
             NODE, "--model", str(model), "--tokens-per-s", str(TOKENS_PER_S)],
            {**os.environ, "SLUICE_NODE_CREDENTIAL": self._credential},
            "node.log",
        )  # fmt: skip
        self._until(f'"models":["{MODEL}"]')

    def stop(self) -> None:
        """End both, the node first."""
        for process in reversed(self._running):
            end_process(process)

    def _spawn(self, arguments: list[str], environment: dict[str, str], log: str) -> None:
        with (self._folder / log).open("wb") as out:
            self._running.append(
                subprocess.Popen(
                    [sys.executable, "-m", *arguments],
                    env=environment,
                    cwd=settings.BASE_DIR,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
            )

    def _until(self, words: str) -> None:
        ends = time.monotonic() + START_S_MAX
        while time.monotonic() < ends:
            if any(process.poll() is not None for process in self._running):
                break
            if words in _readiness(self.port):
                return
            time.sleep(0.1)
        logs = "\n".join(log.read_text()[-3_000:] for log in self._folder.glob("*.log"))
        raise AssertionError(f"no {words} within {START_S_MAX:g} s: {logs}")


@contextmanager
def connector(site: Site) -> Iterator[None]:
    """What calls other servers, as `sluice run` starts it."""
    argv = ["manage.py", "connector", "--gateway", f"ws://127.0.0.1:{site.port}"]
    with _beside(argv, {"SLUICE_ROLE": "connector"}):
        yield


@contextmanager
def agent(site: Site, token: str, folder: Path, name: str) -> Iterator[None]:
    """The agent of a host that was just added."""
    argv = ["-m", "inference.agent", "--name", name, "--data", str(folder), "--models"]
    argv += [str(settings.SHIPPED_MODEL_DIR.parent), "--control", f"http://127.0.0.1:{site.port}"]
    with _beside(argv, {"SLUICE_ENROL_TOKEN": token}):
        yield


@contextmanager
def _beside(argv: list[str], environment: dict[str, str]) -> Iterator[None]:
    whole = {**os.environ, **environment}
    process = subprocess.Popen([sys.executable, *argv], env=whole, cwd=settings.BASE_DIR)
    try:
        yield
    finally:
        end_process(process)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Ask it to stop, and end it where it takes too long."""
    process.terminate()
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _readiness(port: int) -> str:
    connection = HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().read().decode()
    except OSError:
        return ""
    finally:
        connection.close()
