"""Every policy by the name that tables and results use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from benchmarks.fleet.fleet import Policy
from benchmarks.fleet.node import Gpu
from benchmarks.fleet.policies.dynamo import Dynamo
from benchmarks.fleet.policies.llmd import LlmdScorers
from benchmarks.fleet.policies.plain import (
    BoundedHash,
    LeastLoad,
    RandomNode,
    RoundRobin,
    SessionHash,
)
from benchmarks.fleet.policies.sglang import SglangCacheAware
from benchmarks.fleet.policies.sluice import Sluice

OURS = "sluice"
Make = Callable[[Sequence[Gpu], Random, int], Policy]

POLICIES: dict[str, Make] = {
    OURS: lambda gpus, random, gateways: Sluice(gpus, random, gateways=gateways),
    "random": lambda gpus, random, _: RandomNode(len(gpus), random),
    "round_robin": lambda gpus, random, _: RoundRobin(len(gpus), random),
    "least_load": lambda gpus, random, _: LeastLoad(len(gpus), random),
    "session_hash": lambda gpus, random, _: SessionHash(len(gpus), random),
    "bounded_hash": lambda gpus, random, _: BoundedHash(len(gpus), random),
    "sglang": lambda gpus, random, _: SglangCacheAware(
        len(gpus), random, tree_blocks_max=gpus[0].kv_blocks
    ),
    "dynamo": lambda gpus, random, _: Dynamo(len(gpus), random),
    "llmd": lambda gpus, random, _: LlmdScorers(len(gpus), random, kv_blocks=gpus[0].kv_blocks),
}
