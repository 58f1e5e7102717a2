"""Among regions in order of nearness, the first with room; if none has room, the least loaded."""

from collections.abc import Mapping, Sequence
from math import inf

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.models import NodeGroup
from controlplane.kernel.spans import INDEX

LOAD = INDEX["s2_balance.load"]


def pick_region(call: Call, regions: Sequence[str], groups: Mapping[str, NodeGroup]) -> str:
    """The region to serve from; load is our own account of jobs in flight over credits."""
    began = call.spans.clock()
    chosen = regions[0]
    if len(regions) > 1:
        near = next((region for region in regions if _has_room(groups[region])), None)
        chosen = near or min(regions, key=lambda region: _load(groups[region]))
    call.spans.add(LOAD, began)
    return chosen


def _has_room(group: NodeGroup) -> bool:
    return any(link.account.credits_left > 0 for link in group.nodes)


def _load(group: NodeGroup) -> float:
    accounts = [link.account for link in group.nodes]
    credits = sum(account.credits for account in accounts)
    # Other gateways may hold all of them just now.
    return sum(account.active for account in accounts) / credits if credits else inf
