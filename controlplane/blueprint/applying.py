"""One thing that is to be made what the document says."""

from typing import NamedTuple

from controlplane.blueprint import things
from controlplane.core.audit.entries import Actor


class Applying(NamedTuple):
    """One thing to change: `before` None where it is to be made, `after` all of its fields.

    `secret` is the key that the document leads to.
    """

    actor: Actor
    key: things.Key
    before: things.Fields | None
    after: things.Fields
    secret: str = ""

    def changed(self, *names: str) -> bool:
        """Whether any of these is to be another; what the document leaves out is not."""
        before = self.before or {}
        return any(name in self.after and self.after[name] != before.get(name) for name in names)
