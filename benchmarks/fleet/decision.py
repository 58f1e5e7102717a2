"""What one routing decision costs in CPU time: the real index and the real choice.

Prompts of 32k tokens in blocks of 16, so chains of 2,048. Every node has the first 64 blocks (one
system prompt), and each chain is on one to eight nodes to different depths. Hashing the prompt and
the receipt are other steps of the pipeline.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import numpy as np

from benchmarks.fleet.blocks import BLOCK_SIZE, CHAIN_BLOCKS, CHAINS, announced, chain
from controlplane.gateway.nodes.index import PrefixIndex
from controlplane.gateway.nodes.measured.account import NodeAccount
from controlplane.gateway.nodes.measured.loads import LoadTable, ManyLoads
from controlplane.gateway.nodes.measured.means import FleetMeans
from controlplane.gateway.s4_route.choice.cost import choose
from inference.contract.frames import KvEvents, Step

KV_BLOCKS = 25_000
DECISIONS = 1000
CREDITS = 128
NEW_TOKENS = 500


def decision_us(nodes: int, *, decisions: int = DECISIONS) -> dict[str, float]:
    """p50 and p99 of a decision among so many nodes, in microseconds of CPU time."""
    decide = decider(nodes, Random(nodes))
    took = []
    for number in range(decisions):
        began = time.thread_time_ns()
        decide(number)
        took.append(time.thread_time_ns() - began)
    p50, p99 = np.percentile(took, [50, 99]) / 1e3
    return {"p50": round(float(p50), 1), "p99": round(float(p99), 1)}


def decider(nodes: int, random: Random) -> Callable[[int], int]:
    """A function from a number to the place of the node chosen for one of the chains."""
    index, means = PrefixIndex(), FleetMeans()
    chains = [chain(number) for number in range(CHAINS)]
    accounts = [used_account(random) for _ in range(nodes)]
    table = LoadTable(nodes)
    for node, account in enumerate(accounts):
        index.join(str(node), KV_BLOCKS)
        table.join(account)
        packed = b"".join(announced(node, nodes))
        index.apply(str(node), KvEvents(seq=0, stored=packed, removed=b"", snapshot=True))
    places = np.array([index.place(str(node)) for node in range(nodes)])
    weighed = ManyLoads.of(accounts) or accounts

    def decide(number: int) -> int:
        depths = index.depths(index.match(chains[number % CHAINS]))
        prompt = CHAIN_BLOCKS * BLOCK_SIZE + NEW_TOKENS
        now_s = 1.0 + number * 0.001
        means.observe(weighed, now_s)
        cached = depths[places] * BLOCK_SIZE
        return choose(weighed, cached, prompt, means, now_s=now_s, draw=0.5).place

    return decide


def used_account(random: Random) -> NodeAccount:
    """A node in the middle of its work, its cache full."""
    account = NodeAccount(CREDITS, block_size=BLOCK_SIZE, kv_blocks=KV_BLOCKS)
    for step_us, tokens in ((10_000, 0), (70_000, 2048)):
        step = Step(
            outputs=[],
            running=40,
            waiting=0,
            waiting_tokens=random.randint(0, 4000),
            kv_free_blocks=12_000,
            kv_cached_blocks=12_000,
            oldest_block_s=random.uniform(5.0, 50.0),
            step_us=step_us,
            preemptions=0,
            prefilled_tokens=tokens,
        )
        account.on_step(step, 1.0)
    for _ in range(random.randint(10, 60)):
        account.book(random.randint(100, 3000)).prefilled()
    account.book(random.randint(0, 6000))
    return account
