"""The ports of what is said: kept contents, files of batches, images behind links.

Ids are as in `ports`.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from controlplane.kernel.contents.kept import KeptContent

BatchQuestion = Literal[
    "upload", "part", "uploaded", "files", "read", "forget", "create", "list", "turn", "claim",
    "done",
]  # fmt: skip


class FetchRefused(Exception):
    """A link of a client is not followed, or leads to nothing; the words are for the client."""


FetchLink = Callable[[str], bytes]
"""The body behind a client's link, on a thread; raises `FetchRefused`."""


class ContentsAway(Exception):
    """What is kept can be neither read nor written now."""


class Batches(Protocol):
    """Files of requests, and batches of them."""

    async def ask(self, question: BatchQuestion, **facts: object) -> bytes:
        """JSON, as its function in `controlplane/batches/sql` tells; raises `LedgerAway`."""


class Rated(NamedTuple):
    """A request that was rated, by its `receipt` as it was recorded; `changed` if not so before."""

    receipt: bytes
    changed: bool


class Contents(Protocol):
    """Prompts and answers of projects that keep them, sealed; and what readers think of answers."""

    async def rate(self, project: str, request: bytes, rating: int, comment: str) -> Rated | None:
        """Keep 1 or -1 with a recorded request of the project; None where there is none.

        Raises `ContentsAway`.
        """

    def keep(self, content: KeptContent) -> None:
        """Queue it, in a bound of bytes beyond which it is dropped and counted; never blocks.

        It replaces nothing: of a request that is kept already it changes nothing.
        """

    async def keep_now(self, content: KeptContent) -> None:
        """The same, durable when it returns, in place of what is kept of the request.

        Raises `ContentsAway`. Where the project keeps nothing any more, nothing is.
        """

    async def keep_end(self, content: KeptContent) -> bool:
        """The same in place of what is kept as in progress; False where nothing is, any more.

        Raises `ContentsAway`.
        """

    async def read(self, project: str, request: bytes) -> KeptContent | None:
        """What is kept of a request of this project; raises `ContentsAway`."""

    async def delete(self, project: str, request: bytes) -> bool:
        """Delete it; whether there was any. Raises `ContentsAway`."""
