"""Where gateways are, and for which nodes."""

from collections.abc import Collection

import msgspec


def takes(pools: Collection[str], pool: str) -> bool:
    """Whether a gateway that names these pools, or none, is for nodes and requests of a pool."""
    return not pools or pool in pools


class GatewayAddress(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A live gateway: its instance id, where nodes dial it, empty if it does not say, and the pools
    whose nodes it takes, all where it names none.
    """

    instance: str
    url: str
    pools: tuple[str, ...] = ()

    def takes(self, pool: str) -> bool:
        return takes(self.pools, pool)
