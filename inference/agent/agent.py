"""Keeps what runs on the host at what the control plane wants: one loop, in one thread."""

import logging
import threading
import time
from pathlib import Path
from typing import Any

from inference.agent.control import ControlAway, ControlPlane, HostRefused
from inference.agent.earlier import EarlierNode
from inference.agent.inventory import inventory
from inference.agent.logs import logs_prune
from inference.agent.models import HostModels
from inference.agent.replicas import KILL_AFTER_S, Replica
from inference.contract.hosts import (
    REPLICAS_MAX,
    SIZES_MAX,
    VALUE,
    HostOrders,
    HostReport,
    ModelSize,
    ModelSource,
    credential_id,
)

LOOK_S = 0.25
# A model that could not be looked at is looked at again.
MEASURE_AGAIN_S = 30.0
REPORT_S_MIN, REPORT_S_MAX = 0.5, 60.0
logger = logging.getLogger(__name__)


class Agent:
    """All replicas of one host. While the control plane is away, what runs stays."""

    def __init__(
        self, control: ControlPlane, data: Path, roots: list[Path], nvml: Any = None
    ) -> None:
        self._control = control
        self._data = data
        self._models = HostModels(data, roots)
        self._nvml = nvml
        self._logs, self._nodes = data / "logs", data / "nodes"
        for folder in (self._logs, self._nodes):
            folder.mkdir(exist_ok=True)
        self._replicas: dict[str, Replica] = {}
        left = sorted(self._nodes.iterdir())
        self._earlier = [node for each in left if (node := EarlierNode(each, KILL_AFTER_S)).step()]
        # Looked at once it is known what is wanted here.
        self._prune_due = True
        self._orders = HostOrders()
        self._sizes: dict[str, ModelSize] = {}
        self._measuring: set[str] = set()
        self._here = inventory(data, nvml)
        self._report_at = self._again_at = 0.0

    def run(self, stop: threading.Event) -> int:
        """Run until `stop` is set or the host is refused, then drain; returns the exit status."""
        refused = False
        while not (stop.is_set() or refused):
            refused = not self._turn()
            stop.wait(LOOK_S)
        for replica in self._replicas.values():
            replica.drain()
        while self._replicas or self._earlier:
            self._step()
            time.sleep(LOOK_S)
        if not refused:
            self._report()
        return int(refused)

    def _turn(self) -> bool:
        """One look; False where the control plane refuses this host."""
        self._step()
        if time.monotonic() < self._report_at:
            return True
        return self._report()

    def _step(self) -> None:
        for replica in list(self._replicas.values()):
            gateways = self._orders.gateways or [self._control.gateway]
            replica.step(gateways, self._here.disk_free)
            if replica.gone:
                del self._replicas[replica.wanted.id]
                self._prune_due = True
        self._earlier = [each for each in self._earlier if each.step()]

    def _report(self) -> bool:
        self._here = inventory(self._data, self._nvml)
        self._report_at = time.monotonic() + self._orders.report_s
        replicas = list(self._replicas.values())
        states = [each.state for each in replicas] + [each.state for each in self._earlier]
        report = HostReport(
            inventory=self._here,
            replicas=states[:REPLICAS_MAX],
            held={
                each.wanted.id: credential_id(each.credential)
                for each in replicas
                if each.credential
            },
            sizes={each: self._sizes[each] for each in self._orders.measure if each in self._sizes},
        )
        try:
            self._follow(self._control.report(report))
        except ControlAway as error:
            logger.warning("%s", error)
        except HostRefused as error:
            logger.error("%s", error)
            return False
        return True

    def _follow(self, orders: HostOrders) -> None:
        self._orders = orders
        wait_s = min(max(orders.report_s, REPORT_S_MIN), REPORT_S_MAX)
        self._report_at = time.monotonic() + wait_s
        # Names of files are made of them.
        sound = [each for each in orders.replicas if VALUE.fullmatch(each.id)]
        wanted = {each.id: each for each in sound[:REPLICAS_MAX]}
        for name, replica in self._replicas.items():
            if name not in wanted:
                replica.drain()
            elif wanted[name].credential:
                replica.renew(wanted[name].credential)
        here = {*self._replicas, *(each.id for each in self._earlier)}
        for name, each in wanted.items():
            if name not in here:
                self._replicas[name] = Replica(each, self._models, self._logs, self._nodes)
        self._measure(orders.measure)
        if self._prune_due:
            self._prune_due = False
            threading.Thread(target=self._prune, daemon=True).start()

    def _prune(self) -> None:
        try:
            logs_prune(self._logs, list(self._replicas))
            self._models.prune(self._used)
        except OSError as error:
            logger.warning("what is no longer used could not be deleted: %s", error)

    def _used(self) -> set[str]:
        here = [each.wanted for each in list(self._replicas.values())]
        return {each.source.revision for each in (*here, *self._orders.replicas)}

    def _measure(self, sources: dict[str, ModelSource]) -> None:
        now = time.monotonic()
        self._sizes = {
            name: size
            for name, size in self._sizes.items()
            if name in sources and not (size.error and now > self._again_at)
        }
        for name, source in list(sources.items())[:SIZES_MAX]:
            if name not in self._sizes and not self._measuring:
                self._measuring.add(name)
                self._again_at = now + MEASURE_AGAIN_S
                threading.Thread(target=self._size, args=(name, source), daemon=True).start()

    def _size(self, name: str, source: ModelSource) -> None:
        try:
            self._sizes = {**self._sizes, name: self._models.size(source)}
        finally:
            self._measuring.discard(name)
            self._report_at = 0.0
