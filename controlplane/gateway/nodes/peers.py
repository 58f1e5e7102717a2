"""What nodes of one model do for each other: one is slow, or out, only beside its like.

Alike are nodes of one pool with the same engine on the same kind of device: a processor is no slow
accelerator.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.measured.breaker import (
    PROBES_MAX,
    SLOWER_MAX,
    BreakerState,
    Cause,
    admitted,
)

log = logging.getLogger(__name__)


def serving(links: Sequence[NodeLink]) -> tuple[NodeLink, ...]:
    """Nodes of one model without those that are ejected, judged in each pool by itself."""
    if all(link.breaker.state is not BreakerState.OPEN for link in links):
        return tuple(links)
    pools: defaultdict[str, list[NodeLink]] = defaultdict(list)
    for link in links:
        pools[link.hello.pool].append(link)
    kept = {link for pool in pools.values() for link in admitted(pool)}
    return tuple(link for link in links if link in kept)


def cap_probing(links: Iterable[NodeLink]) -> None:
    """A node that proves itself gets a few jobs at once, where another takes the rest."""
    links = list(links)
    closed = {link.hello.pool for link in links if link.breaker.state is BreakerState.CLOSED}
    for link in links:
        proving = link.breaker.state is BreakerState.HALF_OPEN and link.hello.pool in closed
        link.account.cap = PROBES_MAX if proving else None


def eject_slow(model: str, links: Iterable[NodeLink]) -> None:
    """Eject nodes whose first tokens take several times as long as those of their like."""
    alike: defaultdict[tuple[str, str, str], list[NodeLink]] = defaultdict(list)
    for link in links:
        if link.breaker.state is BreakerState.CLOSED:
            alike[link.hello.pool, link.hello.engine, link.hello.device].append(link)
    for peers in alike.values():
        if len(peers) > 1:
            _eject_slow_of(model, peers)


def _eject_slow_of(model: str, peers: list[NodeLink]) -> None:
    # One rate for all: by its own, a slow node would be as quick as it should be.
    rate = max(link.account.speed.prefill_tokens_per_s for link in peers)
    found = [(link, link.known.times(model).stretch(rate)) for link in peers]
    known = [(link, stretch) for link, stretch in found if stretch is not None]
    for link, stretch in known:
        others = [theirs for other, theirs in known if other is not link]
        if others and stretch > SLOWER_MAX * max(1.0, median(others)):
            log.warning(
                "node slow name=%s model=%s stretch=%.1f others=%.1f",
                link.identity.name, model, stretch, median(others),
            )  # fmt: skip
            link.known.times(model).recent.clear()
            link.breaker.eject(Cause.SLOW)
