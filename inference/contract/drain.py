"""The frames by which a node comes to rest; see `frames`."""

import msgspec


class Draining(msgspec.Struct, tag="draining", array_like=True, frozen=True, kw_only=True):
    """The node takes no new jobs and finishes what it has."""

    deadline_s: float


class Drain(msgspec.Struct, tag="drain", array_like=True, frozen=True, kw_only=True):
    """Take no new jobs until `Undrain`; what still runs after `deadline_s` is ended."""

    deadline_s: float


class Undrain(msgspec.Struct, tag="undrain", array_like=True, frozen=True, kw_only=True):
    """Take jobs again."""
