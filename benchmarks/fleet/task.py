"""One run of the simulator: traffic, policy and seed in, times to the first token out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

import numpy as np

from benchmarks.fleet.chains import Request
from benchmarks.fleet.fleet import DRAIN_S, FRAME_DELAY_S, Run, Simulation, measured
from benchmarks.fleet.node import Gpu
from benchmarks.fleet.policies.registry import POLICIES
from benchmarks.fleet.workloads import WORKLOADS, Traffic


@dataclass(frozen=True, slots=True)
class Cell:
    """A row of the table: traffic that all policies get alike."""

    workload: str
    working_set: float
    nodes: int = 8
    load: float = 0.85
    warm_s: float = 40.0
    span_s: float = 40.0

    @property
    def name(self) -> str:
        """As results name it; without the working set where nothing is shared."""
        if self.workload == "mixed":
            return self.workload
        return f"{self.workload}_{self.working_set:g}"


@dataclass(frozen=True, slots=True)
class Task:
    """One run, small enough to be sent to another process."""

    cell: Cell
    policy: str
    seed: int
    gateways: int = 1
    frame_delay_s: float = FRAME_DELAY_S

    @property
    def key(self) -> str:
        """Equal for equal runs."""
        return repr(self)


def simulate(task: Task) -> Run:
    """The run; same task, same figures."""
    cell = task.cell
    workload = WORKLOADS[cell.workload]
    total_s = cell.warm_s + cell.span_s
    traffic = Traffic(cell.nodes, workload.rate * cell.load * cell.nodes, total_s, cell.working_set)
    requests = workload.make(np.random.default_rng(task.seed), traffic)
    random = Random(task.seed)
    for request in requests:
        turn: Request | None = request
        while turn is not None:
            turn.gateway = random.randrange(task.gateways)
            turn = turn.follow
    gpus = [Gpu()] * cell.nodes
    policies = [
        POLICIES[task.policy](gpus, Random(f"{task.seed} {number}"), task.gateways)
        for number in range(task.gateways)
    ]
    simulation = Simulation(requests, policies, gpus, frame_delay_s=task.frame_delay_s)
    simulation.run(total_s + DRAIN_S)
    return measured(simulation.done, cell.warm_s, total_s, total_s + DRAIN_S)


def pooled(runs: Iterable[Run]) -> Run:
    """Runs as one, so that percentiles are over all their samples."""
    every = Run()
    for run in runs:
        every.ttft_s += run.ttft_s
        every.prompt_tokens += run.prompt_tokens
        every.cached_tokens += run.cached_tokens
        every.unserved += run.unserved
    return every
