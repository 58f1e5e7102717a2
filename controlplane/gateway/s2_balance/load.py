"""Among regions in order of nearness, the first with room; if none has room, the least loaded."""

from collections.abc import Sequence
from math import inf

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.link import NodeLink
from controlplane.kernel.spans import INDEX

LOAD = INDEX["s2_balance.load"]


def pick_region(call: Call, regions: Sequence[str], nodes: Sequence[NodeLink]) -> str:
    """The region to serve from; load is our own account of jobs in flight over credits."""
    began = call.spans.clock()
    chosen = regions[0]
    if len(regions) > 1:
        roomy = {link.hello.region for link in nodes if link.account.credits_left > 0}
        near = next((region for region in regions if region in roomy), None)
        chosen = near or min(regions, key=lambda region: _load(region, nodes))
    call.spans.add(LOAD, began)
    return chosen


def _load(region: str, nodes: Sequence[NodeLink]) -> float:
    accounts = [link.account for link in nodes if link.hello.region == region]
    credits = sum(account.credits for account in accounts)
    # Other gateways may hold all of them just now.
    return sum(account.active for account in accounts) / credits if credits else inf
