"""The safety layer: secrets, personal data and abuse in an answer, per project off, flag or block.

`block` holds text back by at most `HOLD_BACK_CHARS` until it has been looked at, so that a match
never leaves in part; a secret longer than that is caught by its start. `flag` holds nothing back:
it marks the record. The classifier reads passages; when it does not answer in time both modes go
on, marked `unchecked`, since an outage of the classifier is not the client's fault.
"""

import asyncio
import re
from collections.abc import Iterator

from controlplane.gateway.ports import Safety
from controlplane.gateway.snapshot import SafetyMode
from controlplane.kernel.policies.personal import CARD, EMAIL, IBAN, SSN, card_length

HOLD_BACK_CHARS = 160
CLASSIFY_CHARS = 120
ABUSE_SCORE_MIN = 0.9
UNCHECKED = "unchecked"

PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("private_key", re.compile(r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----")),
    ("aws_access_key", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("api_key", re.compile(r"\b(?:sk|pk|rk|node)_(?:live|test|sluice)_[0-9A-Za-z]{12,}")),
    ("github_token", re.compile(r"\bgh[pousr]_[0-9A-Za-z]{36}\b")),
    # Its second part, or a first part so long that the second would come too late.
    ("jwt", re.compile(r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}|\beyJ[\w-]{120,}")),
    ("email", EMAIL),
    ("iban", IBAN),
    ("us_ssn", SSN),
)


def find_pattern(text: str, *, start: int = 0, final: bool = True, leaving: int = 0) -> str | None:
    """Name of a pattern that `text` contains from `start` on; what stands before is only context.

    Unless `final`, a match that touches the end waits for what follows it, as long as it does not
    reach into what is `leaving`, the part before that index.
    """
    for name, begin, end in _matches(text, start):
        if final or end < len(text) or begin < leaving:
            return name
    return None


def _matches(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    for name, pattern in PATTERNS:
        for match in pattern.finditer(text, start):
            yield name, match.start(), match.end()
    for match in CARD.finditer(text, start):
        length = card_length(match[1])
        if length:
            yield "card", match.start(), match.start() + length


class SafetyFilter:
    """One choice's filter. `verdict` names what was found, empty while nothing was.

    `_window` is the text that patterns are searched in; in `block` it is what is held back.
    """

    __slots__ = (
        "_asked", "_before", "_mode", "_safety", "_unread", "_window", "blocked", "verdict",
    )  # fmt: skip

    def __init__(self, mode: SafetyMode, safety: Safety) -> None:
        self._mode = mode
        self._safety = safety
        self._before = ""
        self._window = ""
        self._unread = ""
        self._asked: set[asyncio.Task[None]] = set()
        self.blocked = False
        self.verdict = ""

    async def feed(self, text: str) -> str:
        if self.blocked:
            return ""
        self._window += text
        self._unread += text
        passes = await self._look(final=False)
        # Take out of the window what it no longer needs.
        ready = max(0, len(self._window) - HOLD_BACK_CHARS)
        left, self._window = self._window[:ready], self._window[ready:]
        self._before = left[-1:] or self._before
        if self._mode == "flag":
            return text
        return left if passes else ""

    async def close(self) -> str:
        """Look at the rest and return what of it was held back, unless it is blocked."""
        passes = not self.blocked and await self._look(final=True)
        rest, self._window = self._window, ""
        return rest if passes and self._mode == "block" else ""

    async def settled(self) -> None:
        """Wait for the classifier's last answers, within its own bound; `verdict` is final then."""
        await asyncio.gather(*self._asked)

    async def _look(self, *, final: bool) -> bool:
        """Search and ask; False once the answer is blocked."""
        start = len(self._before)
        self._found(
            find_pattern(
                self._before + self._window,
                start=start,
                final=final,
                leaving=start + len(self._window) - HOLD_BACK_CHARS,
            )
        )
        due = final or len(self._unread) >= CLASSIFY_CHARS
        if self._unread and due and not self.blocked:
            passage, self._unread = self._unread, ""
            await self._read(passage)
        return not self.blocked

    async def _read(self, passage: str) -> None:
        """Ask the classifier; only `block` waits for its answer."""
        if self._mode == "block":
            await self._classify(passage)
            return
        task = asyncio.get_running_loop().create_task(self._classify(passage))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def _classify(self, passage: str) -> None:
        try:
            score = await self._safety.score(passage)
        except TimeoutError:
            self.verdict = self.verdict or UNCHECKED
            return
        self._found("abuse" if score >= ABUSE_SCORE_MIN else None)

    def _found(self, name: str | None) -> None:
        if name is None:
            return
        self.verdict = name
        self.blocked = self._mode == "block"
        if self.blocked:
            self._window = ""
