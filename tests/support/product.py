"""The whole product as real processes, for tests of faults: gateways, echo nodes, both databases.

Everything runs on loopback in a database of its own and is stopped here; clients are elsewhere.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command

from controlplane.composed.demo import KEY_LABEL, MODEL, POOL
from controlplane.core.audit.entries import OPERATOR
from controlplane.embedded import stack
from controlplane.fleet.services import node_credential_create
from controlplane.quotas.services import rate_limit_set
from controlplane.tenants.models import ApiKey
from tests.support.loopback import HOST, reserve_port
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.servers import Servers, drop_database, make_database, redis_door
from tests.support.waiting import wait_for

STOP_S_MAX = 60.0
LIMITS = {"requests_per_min": 1_000_000, "tokens_per_min": 1_000_000_000}
LOG_CHARS_MAX = 6_000
# Longer than any request of these tests takes, so that what hangs is seen to hang.
DEADLINE_S, GRACE_S = 30, 5
CLOCK = "controlplane.celery"
SHORT_HOLDS = {
    "SLUICE_REQUEST_DEADLINE_S": str(DEADLINE_S),
    "SLUICE_HOLD_GRACE_S": str(GRACE_S),
}
# Its time, the sweeper's period, and a worker that is busy with other jobs.
SWEEP_S = 10.0
EXPIRED_S_MAX = DEADLINE_S + GRACE_S + SWEEP_S + 15.0


@dataclass(frozen=True)
class Plan:
    """What to run. `tokens_per_s` paces each stream of an echo node; 0 answers at once. With
    `speculates` nodes run the compact engine instead, which drafts a token wherever it can;
    `options` are further ones of it.

    With `started` False the processes are made, and started by the test. Nodes are told of the
    first `seeds` gateways only, and find the others. `dial` gives the port that a node of this name
    dials instead of a gateway's, `gateway_env` what the environment of a gateway has besides.

    Of another `model` than the shipped one nodes run the compact engine, under the shipped name.

    With `sweeps` a worker with its clock runs, too, and holds end soon enough to wait for it: what
    nobody has resolved is expired within `EXPIRED_S_MAX`, by the product itself. `clock` is the
    module that says when jobs are due.
    """

    gateways: int = 1
    nodes: int = 1
    tokens_per_s: float = 0.0
    credits: int | None = None
    speculates: bool = False
    options: tuple[str, ...] = ()
    started: bool = True
    seeds: int | None = None
    dial: Callable[[str, int], int] | None = None
    gateway_env: Callable[[int], Mapping[str, str]] | None = None
    sweeps: bool = False
    clock: str = CLOCK
    model: Path = settings.SHIPPED_MODEL_DIR


class Child:
    """One process that can be killed and started again; its output is kept.

    `killed_s` are the moments at which it was, on the monotonic clock.
    """

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self._argv = argv
        self._env = env
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = False
        self.killed_s: list[float] = []

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """All that it has written."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Begin to start; returns at once."""
        self._ending = False
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._argv,
                env={**os.environ, **self._env},
                cwd=settings.BASE_DIR,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def signal(self, number: int) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it as a crash would."""
        assert self._process is not None
        self.killed_s.append(time.monotonic())
        self._process.kill()
        self._process.wait()

    def send_kill(self) -> None:
        """Begin to end it as a crash would, without waiting."""
        self.signal(signal.SIGKILL)

    def wait(self) -> int:
        """Wait until it has ended by itself; returns the exit status."""
        assert self._process is not None
        return self._process.wait(STOP_S_MAX)

    def begin_stop(self) -> None:
        """Ask it to end, once and without waiting."""
        if self.alive and not self._ending:
            self._ending = True
            self.signal(signal.SIGTERM)

    def stop(self) -> int:
        """Ask it to end; killed when it does not. Returns the exit status."""
        if self._process is None:
            return 0
        self.begin_stop()
        try:
            return self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


@dataclass
class Product:
    """The running product and the demo's key."""

    servers: Servers
    key: str
    gateways: list[Child] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    nodes: list[Child] = field(default_factory=list)
    jobs: list[Child] = field(default_factory=list)

    @property
    def urls(self) -> list[str]:
        """Base URL of each gateway."""
        return [f"http://{HOST}:{port}" for port in self.ports]

    def start(self) -> None:
        """Begin to start every process."""
        for child in (*self.gateways, *self.nodes, *self.jobs):
            child.start()

    def mend(self) -> None:
        """Start what has ended, and return once everything serves."""
        start_again(self.servers)
        for child in (*self.gateways, *self.nodes, *self.jobs):
            if not child.alive:
                child.start()
        self.wait_ready()

    def readiness(self, number: int = 0) -> dict[str, Any]:
        """What a gateway says of itself; empty when nobody answers."""
        url = f"{self.urls[number]}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                body = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                body = error.read()
        except OSError:
            return {}
        facts: dict[str, Any] = json.loads(body)
        return facts

    def under_way(self) -> int:
        """Jobs that nodes have, as the gateways that live see it."""
        return sum(int(self.readiness(n).get("jobs", 0)) for n in range(len(self.ports)))

    def wait_ready(self, nodes: int | None = None) -> None:
        """Return once every gateway serves the model from so many nodes."""
        wanted = len(self.nodes) if nodes is None else nodes
        wait_for(lambda: self._all_serve(wanted), "readiness")

    def _all_serve(self, nodes: int) -> bool:
        dead = [child.name for child in self.gateways if not child.alive]
        assert not dead, f"{dead} ended"
        return all(self._serves(number, nodes) for number in range(len(self.ports)))

    def _serves(self, number: int, nodes: int) -> bool:
        facts = self.readiness(number)
        return bool(
            facts.get("ready")
            and facts["nodes"] == nodes
            and (not nodes or facts["models"])
            and facts["limits_shared"]
            and facts["gateways"] >= sum(child.alive for child in self.gateways)
        )

    def print_logs(self) -> None:
        """The end of every log, for whoever reads a failure."""
        for child in (*self.gateways, *self.nodes, *self.jobs):
            print(f"--- {child.name}\n{child.log[-LOG_CHARS_MAX:]}")


@contextlib.contextmanager
def running_product(servers: Servers, plan: Plan | None = None) -> Iterator[Product]:
    """A fresh database, the demo's bootstrap, and the processes of the plan until the block ends.

    Servers that the block has stopped are started again.
    """
    plan = plan or Plan()
    with tempfile.TemporaryDirectory(prefix="sluice-product-") as folder, fresh_data(servers):
        product = _make(servers, plan, Path(folder))
        try:
            if plan.started:
                product.mend()
            yield product
        finally:
            for child in product.jobs:
                child.begin_stop()
            for child in (*product.nodes, *product.gateways, *product.jobs):
                child.stop()
            product.print_logs()


@contextlib.contextmanager
def fresh_data(servers: Servers) -> Iterator[None]:
    """An empty Redis and a new database, both there again at the end."""
    with redis_door() as door:
        door.flushall()
    make_database(servers.postgres)
    try:
        yield
    finally:
        start_again(servers)
        drop_database(servers.postgres)


def start_again(servers: Servers) -> None:
    """Start whichever server is down."""
    for server in (servers.postgres, servers.redis):
        if not server.alive:
            server.start()


def demo_key() -> ApiKey:
    """The demo's key as services take it."""
    ((key, project, organization),) = rows(
        "SELECT id, project_id, organization_id FROM api_keys WHERE label = %s", KEY_LABEL
    )
    return ApiKey(id=key, project_id=project, organization_id=organization)


def _make(servers: Servers, plan: Plan, folder: Path) -> Product:
    out = io.StringIO()
    call_command("bootstrap_demo", stdout=out)
    made = json.loads(out.getvalue().splitlines()[-1])
    # The demo's own are for people: a fast machine under load asks more often.
    rate_limit_set(actor=OPERATOR, subject=demo_key(), **LIMITS)
    product = Product(servers, made["api_key"])
    for number in range(1, plan.gateways + 1):
        port = reserve_port()
        child = stack.gateway(HOST, port)
        env = {**child.env, "SLUICE_ROLE": "gateway", "SLUICE_LOG_LEVEL": "INFO"}
        env["SLUICE_NODE_HEADER"] = "true"
        if plan.dial is not None:
            # Nodes would learn of gateways' own addresses, and dial those, too.
            env["SLUICE_ADVERTISE_URL"] = ""
        if plan.sweeps:
            env |= SHORT_HOLDS
        if plan.gateway_env is not None:
            env |= plan.gateway_env(number - 1)
        name = f"gateway-{number}"
        product.gateways.append(Child(name, child.argv, env, folder / f"{name}.log"))
        product.ports.append(port)
    if plan.sweeps:
        product.jobs.append(_worker(folder, plan.clock))
    credentials = {made["node_name"]: made["node_credential"]}
    for number in range(2, plan.nodes + 1):
        name = f"node-{number}"
        more = node_credential_create(actor=OPERATOR, name=name, pool=POOL, models=[MODEL.name])
        credentials[name] = more.secret
    for name in list(credentials)[: plan.nodes]:
        env = {"SLUICE_NODE_CREDENTIAL": credentials[name]}
        dial = plan.dial or (lambda name, port: port)
        argv = _node_argv(name, [dial(name, port) for port in product.ports[: plan.seeds]], plan)
        product.nodes.append(Child(name, argv, env, folder / f"{name}.log"))
    return product


def _worker(folder: Path, clock: str) -> Child:
    """A worker with the clock inside, which makes one process of two."""
    child = stack.worker()
    argv = [clock if word == CLOCK else word for word in child.argv]
    argv += ["--beat", "--schedule", str(folder / "schedule")]
    return Child(child.name, argv, child.env, folder / "worker.log")


def _node_argv(name: str, ports: Sequence[int], plan: Plan) -> list[str]:
    argv = [sys.executable, "-m", "inference", "--name", name]
    argv += ["--model", str(plan.model)]
    if plan.model != settings.SHIPPED_MODEL_DIR:
        argv += ["--engine", "compact", "--model-name", MODEL.name]
    elif plan.speculates:
        argv += ["--engine", "compact", "--speculate", "on", "--drafts", "1", *plan.options]
    else:
        argv += ["--engine", "echo", "--tokens-per-s", str(plan.tokens_per_s)]
    if plan.credits is not None:
        argv += ["--credits", str(plan.credits)]
    for port in ports:
        argv += ["--gateway", stack.fleet_url(HOST, port)]
    return argv


def _verify() -> str:
    out = io.StringIO()
    try:
        call_command("verify_ledger", strict=True, stdout=out)
    except SystemExit:
        raise AssertionError(f"verify_ledger found breaches:\n{out.getvalue()}") from None
    return out.getvalue()


verify_ledger = orm(_verify)
