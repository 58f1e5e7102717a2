"""Plays all cases against a fresh product, and makes a record of each: answers, charges, rows."""

from __future__ import annotations

import signal
from collections import defaultdict
from typing import Any

from tests.product.books import open_holds
from tests.recorded.books import books, sums
from tests.recorded.case import Case
from tests.recorded.client import Client, Heard
from tests.recorded.plain import Names, shown
from tests.recorded.world import World, running_world
from tests.support.money import rows
from tests.support.servers import Servers
from tests.support.waiting import wait_for

Record = dict[str, Any]
SUMS = "sums over all"
CLAIMING = "idempotency"
OPEN_CLAIMS = "SELECT request FROM inference_claims WHERE state <> 'done'"


def play(servers: Servers, cases: list[Case]) -> list[Record]:
    """One record for each case, in their order, and one of what was counted over all."""
    with running_world(servers) as world:
        heard = _heard(world, cases)
        _wait_for_rest(world)
        # It writes down all that it has counted before it ends.
        (gateway,) = world.product.gateways
        assert gateway.stop() in (0, -signal.SIGTERM)
        return _records(world, cases, heard)


def _heard(world: World, cases: list[Case]) -> list[list[Heard]]:
    client = Client(world.port, world.keys, world.socket)
    heard = []
    try:
        for case in cases:
            if case.kind == CLAIMING:
                # What a request before it has claimed is kept, or given back, after its answer.
                wait_for(lambda: not rows(OPEN_CLAIMS), "the last claim's end")
            heard.append(client.play(case))
            if case.leaves is not None:
                _wait_for_rest(world)
    finally:
        client.close()
    return heard


def _wait_for_rest(world: World) -> None:
    """What was begun has ended, also where nobody waited for its answer."""
    wait_for(lambda: not world.product.readiness()["jobs"], "the last job's end")
    wait_for(lambda: not open_holds(), "the last hold's end")


def _records(world: World, cases: list[Case], heard: list[list[Heard]]) -> list[Record]:
    found = books(world.journal)
    names = Names(world.names)
    owners: defaultdict[str, list[str]] = defaultdict(list)
    for case, connections in zip(cases, heard, strict=True):
        answers = [answer for each in connections for answer in each.answers]
        names.learn(answers, case.name)
        for answer in answers:
            digits = answer.header("x-request-id").removeprefix("req_")
            if digits in found:
                owners[case.name].append(digits)
    known = {digits for each in owners.values() for digits in each}
    # Of a request that was cut off no answer names its id; probes of nodes are no requests.
    strays = sorted(each for each in found.keys() - known if found[each].keys() != {"jobs"})
    for number, digits in enumerate(strays, 1):
        names.learn_one(digits, f"request of nobody {number}")
    records = [
        _record(case, connections, [found[each] for each in owners[case.name]], names)
        for case, connections in zip(cases, heard, strict=True)
    ]
    counted = {name: sorted(names.deep(each), key=str) for name, each in sums().items()}
    of_nobody = sorted((names.deep(found[each]) for each in strays), key=str)
    return [*records, {"case": SUMS, "kind": SUMS, **counted, "of nobody": of_nobody}]


def _record(case: Case, heard: list[Heard], found: list[Record], names: Names) -> Record:
    record: Record = {"case": case.name, "kind": case.kind, "sent": case.digest}
    record |= shown(heard[0], names)
    if heard[1:]:
        record["beside"] = [shown(each, names) for each in heard[1:]]
    if found:
        record["books"] = [names.deep(each) for each in found]
    return record
