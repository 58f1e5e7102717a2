"""Starts and stops node processes of this host, so that each pool has the nodes that it should.

Only pools with a start command are driven. What other hosts run counts: the driver adds what is
missing, and takes away only what it has started itself.
"""

import shlex
import sys
from collections import defaultdict
from dataclasses import dataclass

from django.core.exceptions import ObjectDoesNotExist
from django.utils import timezone

from controlplane.core.audit.entries import OPERATOR
from controlplane.embedded.supervisor import Child, Supervisor
from controlplane.fleet.models import Node
from controlplane.fleet.overview import Signal, signals
from controlplane.fleet.selectors import fleet_get, node_credential_active
from controlplane.fleet.services import node_credential_create, node_credential_revoke, node_remove

POLL_S = 1.0
PROCESSES_MAX = 64
# A node drains before it ends: its own deadline, and room for what comes after that.
STOP_SECONDS_MAX = 45.0
REPLACED = "replaced by a newer start"
CREDENTIAL_VARIABLE = "SLUICE_NODE_CREDENTIAL"
PYTHON_WORDS = ("python", "python3")


@dataclass(frozen=True)
class DriverHost:
    """Where the driver runs: the address that its nodes dial, and a word in their names."""

    gateway: str
    host: str


class Driver:
    """The node processes of one host; `step` is called again and again."""

    def __init__(self, place: DriverHost, supervisor: Supervisor) -> None:
        self._place = place
        self._supervisor = supervisor
        self._running: dict[str, list[str]] = defaultdict(list)
        self._leaving: set[str] = set()

    @property
    def names(self) -> set[str]:
        return {name for names in self._running.values() for name in names}

    def step(self) -> bool:
        """Move each pool one process nearer to its wish; True where the processes changed."""
        changed = self._supervisor.look()
        living = {entry.name for entry in self._supervisor.entries}
        for name in self._leaving - living:
            self._leaving.discard(name)
            _remove(name)
        for signal in signals(actor=OPERATOR, now=timezone.now()):
            if signal.pool.start_command or self._running[signal.pool.name]:
                changed |= self._move(signal)
        return changed

    def stop(self) -> None:
        leaving = self.names | self._leaving
        self._supervisor.stop()
        for name in sorted(leaving):
            _remove(name)

    def _move(self, signal: Signal) -> bool:
        pool, mine = signal.pool, self._running[signal.pool.name]
        others = [
            view for view in signal.view.nodes if view.ready and not self._owns(view.node.name)
        ]
        wished = max(0, signal.desired - len(others)) if pool.start_command else 0
        if len(mine) < wished and len(self.names) < PROCESSES_MAX:
            mine.append(self._start(signal))
        elif len(mine) > wished:
            self._retire(mine.pop())
        else:
            return False
        return True

    def _owns(self, name: str) -> bool:
        return name in self.names or name in self._leaving

    def _start(self, signal: Signal) -> str:
        pool = signal.pool.name
        taken = {view.node.name for view in signal.view.nodes} | self.names | self._leaving
        name = next(
            name
            for number in range(1, PROCESSES_MAX + len(taken) + 1)
            if (name := f"{pool}-{self._place.host}-{number}") not in taken
        )
        secret = _credential(name, pool, signal.view.models or None)
        argv = command_of(signal.pool.start_command)
        argv += ["--gateway", self._place.gateway, "--name", name, "--pool", pool]
        env = {CREDENTIAL_VARIABLE: secret}
        self._supervisor.add(Child(name, argv, env, 1, STOP_SECONDS_MAX))
        return name

    def _retire(self, name: str) -> None:
        self._leaving.add(name)
        self._supervisor.retire(name)


def command_of(text: str) -> list[str]:
    """The words of a start command; `python` is this installation's own."""
    words = shlex.split(text)
    return [sys.executable, *words[1:]] if words[:1] and words[0] in PYTHON_WORDS else words


def _credential(name: str, pool: str, models: list[str] | None) -> str:
    for earlier in node_credential_active(node_name=name):
        node_credential_revoke(actor=OPERATOR, credential=earlier, reason=REPLACED)
    return node_credential_create(actor=OPERATOR, name=name, pool=pool, models=models).secret


def _remove(name: str) -> None:
    try:
        node_remove(actor=OPERATOR, node=fleet_get(Node, user=OPERATOR, name=name))
    except ObjectDoesNotExist:
        return
