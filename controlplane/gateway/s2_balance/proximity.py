"""Regions in order of nearness: the client's, then the gateway's, then the rest by name."""

from collections.abc import Iterable

from controlplane.gateway.call import Call
from controlplane.kernel.spans import INDEX

PROXIMITY = INDEX["s2_balance.proximity"]


def near_regions(
    call: Call, regions: Iterable[str], *, client_region: str | None, own_region: str
) -> list[str]:
    began = call.spans.clock()
    preferred = [region for region in (client_region, own_region) if region]
    known = sorted(set(regions))
    ordered = [region for region in dict.fromkeys(preferred) if region in known]
    ordered += [region for region in known if region not in ordered]
    call.spans.add(PROXIMITY, began)
    return ordered
