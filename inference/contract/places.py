"""Where gateways are, and for which nodes."""

import msgspec


class GatewayAddress(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A live gateway: its instance id, where nodes dial it, empty if it does not say, and the pools
    whose nodes it takes, all where it names none.
    """

    instance: str
    url: str
    pools: tuple[str, ...] = ()

    def takes(self, pool: str) -> bool:
        return not self.pools or pool in self.pools
