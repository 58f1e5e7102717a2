"""The faults, one function a kind: break several nodes or gateways at once, while requests run.

Each returns the count of its round; a fault is one process or connection that was broken. What is
promised is written beside each.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

from benchmarks.faults.ground import SEEN_MIN, Count, Ground, until
from tests.product.traffic import Answer
from tests.support.product import Child

# What is promised of a node that stands still (docs/fleet.md, "Nodes that fail"): new work goes
# elsewhere within 4 s, and its streams end within 9 s. Beyond that and the slack, which is for the
# processes of a whole installation on two cores, an answer is late.
SLACK_S = 2.0
OUT_S = 4.0
LOST_S = 9.0
SHORT = 2
# Well within the time for which both ends keep a broken link (docs/fleet.md).
BROKEN_S = 1.0
SLOW_STOP_S, SLOW_GO_S = 0.9, 0.05
SLOW_S_MAX = 30.0
# How long before its gateway dies a request may have come, and perhaps not reached a node.
FRESH_S_MAX = 0.05
# Jobs that may prove a node again while these are counted.
SLOW_SHARE_MAX = 0.1
# Times as many as keep all busy: steps of every node to every gateway, more than make it known.
WARM_UP, WARM_UP_TOKENS = 2, 20
SLOW_CLIENTS = 2

Round = Callable[[Ground], Awaitable[Count]]


def everyone(answer: Answer) -> bool:
    """All of them have to be answered in full."""
    return True


async def node_killed_before_first_token(ground: Ground) -> Count:
    """Every request is answered in full, by another node; the client sees only a delay."""
    victims = ground.victims(ground.at_once)
    # Stopped, they take jobs and answer none: those are before their first token for certain.
    signal_all(victims, signal.SIGSTOP)
    asked = ground.ask(ground.requests, tokens=SHORT, streams=(True, False))
    enough = ground.requests * (ground.nodes - len(victims)) // ground.nodes // 2
    await until(lambda: asked.ended >= enough, OUT_S + SLACK_S)
    waiting = ground.requests - asked.ended
    kill_and_start(victims)
    await asked.done()
    tried = len(victims) if waiting >= len(victims) else 0
    return await ground.check(asked, tried=tried, whole=everyone)


async def node_killed_after_first_token(ground: Ground) -> Count:
    """Its streams end with a typed error and a bill for exactly what came; all others go on."""
    victims = ground.victims(ground.at_once)
    asked = ground.ask(ground.requests, streams=(True, True, False))
    await asked.seen(SEEN_MIN)
    names = {victim.name for victim in victims}
    kill_and_start(victims)
    await asked.done()
    hit = [a for a in asked.answers if a.streamed and a.headers.get("x-sluice-node") in names]

    def whole(answer: Answer) -> bool:
        return answer not in hit or answer.error.get("code") != "node_lost"

    return await ground.check(asked, tried=len(victims) if hit else 0, whole=whole)


async def node_frozen(ground: Ground) -> Count:
    """SIGSTOP: no new work within `OUT_S`, its streams end within `LOST_S`."""
    victims = ground.victims(ground.at_once)
    return await _stand_still(
        ground,
        victims,
        stop=lambda node: node.signal(signal.SIGSTOP),
        go=lambda node: node.signal(signal.SIGCONT),
    )


async def network_cut(ground: Ground) -> Count:
    """Neither side hears the other, and no connection breaks: as if the node were frozen."""
    victims = ground.victims(ground.at_once)
    return await _stand_still(
        ground,
        victims,
        stop=lambda node: ground.network.cut(node.name),
        go=lambda node: ground.network.mend(node.name),
    )


async def link_broken(ground: Ground) -> Count:
    """Connections break for a second: every request is answered in full, and no stream ends."""
    victims = ground.victims(ground.at_once)
    asked = ground.ask(ground.requests, streams=(True, True, False))
    await asked.seen(SEEN_MIN)
    for node in victims:
        ground.network.sever(node.name)
    try:
        await asyncio.sleep(BROKEN_S)
    finally:
        for node in victims:
            ground.network.mend(node.name)
    await asked.done()
    return await ground.check(asked, tried=len(victims), whole=everyone)


async def _stand_still(
    ground: Ground,
    victims: list[Child],
    *,
    stop: Callable[[Child], None],
    go: Callable[[Child], None],
) -> Count:
    # Gateways have to have seen some work, or the longest of all bounds holds.
    warm = ground.ask(WARM_UP * ground.requests, tokens=WARM_UP_TOKENS)
    await warm.done()
    streams = ground.ask(ground.requests)
    await streams.seen(SEEN_MIN)
    began_s = time.monotonic()
    for node in victims:
        stop(node)
    try:
        waiting = ground.ask(ground.requests, tokens=SHORT, streams=(True, False))
        await waiting.done()
        # Some may be the first that a gateway sends to one of these nodes.
        later = ground.ask(ground.requests, tokens=SHORT, streams=(True, False))
        await later.done()
        waiting.join(later)
        late = ground.late(waiting.answers, OUT_S + SLACK_S)
        await streams.done()
        late += ground.late(streams.answers, LOST_S + SLACK_S, since_s=began_s)
    finally:
        for node in victims:
            go(node)
    names = {victim.name for victim in victims}
    hit = [a for a in streams.answers if a.headers.get("x-sluice-node") in names]
    for more in (warm, waiting):
        streams.join(more)

    def whole(answer: Answer) -> bool:
        return answer not in hit or answer.error.get("code") != "node_lost"

    count = await ground.check(streams, tried=len(victims), whole=whole)
    count.late += late
    return count


async def node_slow(ground: Ground) -> Count:
    """A node that runs a twentieth of the time: traffic moves away, and all are answered."""
    # Half of the nodes minus one, so that the quick ones are the rule.
    victims = ground.victims(ground.at_once - 1)
    names = {victim.name for victim in victims}
    slowing = asyncio.create_task(_slow_down(victims))
    asked = ground.ask(0)
    began_s = time.monotonic()
    last: list[Answer] = []
    try:
        while time.monotonic() - began_s < SLOW_S_MAX:
            some = ground.ask(SLOW_CLIENTS * ground.requests, tokens=SHORT, streams=(True, False))
            await some.done()
            asked.join(some)
            last = some.answers
            if share(last, names) <= SLOW_SHARE_MAX:
                break
    finally:
        slowing.cancel()
        await asyncio.wait([slowing])
    moved = share(last, names) <= SLOW_SHARE_MAX
    ground.notes.append(f"traffic left slow nodes within {time.monotonic() - began_s:.1f} s")
    count = await ground.check(asked, tried=len(victims), whole=everyone)
    count.late += 0 if moved else len(victims)
    return count


async def _slow_down(nodes: list[Child]) -> None:
    try:
        while True:
            signal_all(nodes, signal.SIGSTOP)
            await asyncio.sleep(SLOW_STOP_S)
            signal_all(nodes, signal.SIGCONT)
            await asyncio.sleep(SLOW_GO_S)
    finally:
        signal_all(nodes, signal.SIGCONT)


async def gateway_killed(ground: Ground) -> Count:
    """What others serve goes on; what the dead one had is charged once, from the nodes' reports.
    Only a request that came to it just before can have reached no node: its hold expires.
    """
    victims = ground.chance.sample(range(ground.gateways), ground.gateways - 1)
    asked = ground.ask(ground.requests, streams=(True, True, False))
    await asked.seen(SEEN_MIN)
    await until(
        lambda: ground.product.under_way() >= len(asked.answers) - asked.ended, OUT_S + SLACK_S
    )
    fresh = ground.ask(ground.requests, streams=(True, False))
    await asyncio.sleep(ground.chance.uniform(0.0, FRESH_S_MAX))
    for number in victims:
        ground.product.gateways[number].kill()
        ground.product.gateways[number].start()
    unsent = len(ground.answers_of(fresh, victims))
    asked.join(fresh)
    await asked.done()
    cut = ground.answers_of(asked, victims)

    def whole(answer: Answer) -> bool:
        return not (answer in cut and answer.broken)

    return await ground.check(asked, tried=len(victims), whole=whole, unsent=unsent)


def share(answers: list[Answer], names: set[str]) -> float:
    """Of these answers, the part that came from these nodes."""
    if not answers:
        return 1.0
    return sum(a.headers.get("x-sluice-node") in names for a in answers) / len(answers)


def signal_all(nodes: list[Child], number: int) -> None:
    """Send a signal to each."""
    for node in nodes:
        node.signal(number)


def kill_and_start(nodes: list[Child]) -> None:
    """End them as a crash would, and begin to start them anew."""
    for node in nodes:
        node.kill()
    for node in nodes:
        node.start()


KINDS: dict[str, Round] = {
    "node killed before first token": node_killed_before_first_token,
    "node killed after first token": node_killed_after_first_token,
    "node frozen": node_frozen,
    "network cut": network_cut,
    "link broken": link_broken,
    "node slow": node_slow,
    "gateway killed": gateway_killed,
}
