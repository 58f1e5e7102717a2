"""Regions in order of nearness: the client's, then the gateway's, then the rest by name."""

from collections.abc import Set as AbstractSet

from controlplane.gateway.call import Call
from controlplane.kernel.spans import INDEX

PROXIMITY = INDEX["s2_balance.proximity"]


def near_regions(
    call: Call, regions: AbstractSet[str], *, client_region: str | None, own_region: str
) -> list[str]:
    began = call.spans.clock()
    ordered = list(regions)
    if len(ordered) > 1:
        near = {own_region: 1, client_region: 0}
        ordered.sort(key=lambda region: (near.get(region, 2), region))
    call.spans.add(PROXIMITY, began)
    return ordered
