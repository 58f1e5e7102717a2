"""What one node hands over to another."""

import msgspec


class Transfer(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A prompt that another node has computed: `params`, in JSON, tell a server where its keys and
    values are. That node had `cached_tokens` of it.
    """

    params: bytes
    cached_tokens: int
