"""Where gateways are."""

import msgspec


class GatewayAddress(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A live gateway: its instance id, and where nodes dial it, empty if it does not say."""

    instance: str
    url: str
