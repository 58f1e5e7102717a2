"""The safety layer: secrets, personal data and abuse in an answer, per project off, flag or block.

Text is held back by at most `HOLD_BACK_CHARS` until it has been looked at, so that a blocked match
never leaves in part. Patterns match within that window: a longer secret is caught by its start.
The classifier reads whole sentences; when it does not answer in time, `flag` goes on and `block`
goes on too, marked `unchecked`, since an outage of the classifier is not the client's fault.
"""

from __future__ import annotations

import re

from controlplane.gateway.ports import Safety
from controlplane.gateway.snapshot import SafetyMode

HOLD_BACK_CHARS = 160
CLASSIFY_CHARS = 120
ABUSE_SCORE_MIN = 0.9
UNCHECKED = "unchecked"

PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("private_key", re.compile(r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----")),
    ("aws_access_key", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("api_key", re.compile(r"\b(?:sk|pk|rk|node)_(?:live|test|sluice)_[0-9A-Za-z]{12,}")),
    ("github_token", re.compile(r"\bgh[pousr]_[0-9A-Za-z]{36}\b")),
    ("jwt", re.compile(r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{8,}")),
    ("email", re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{2,63}){1,4}\b")),
    ("card", re.compile(r"\b(?:\d[ -]?){12,18}\d\b")),
    ("iban", re.compile(r"\b[A-Z]{2}\d{2}(?: ?[0-9A-Z]{4}){3,7}(?: ?[0-9A-Z]{1,3})?\b")),
    ("us_ssn", re.compile(r"\b\d{3}-\d{2}-\d{4}\b")),
)


def find_pattern(text: str) -> str | None:
    """Name of the first pattern that `text` contains."""
    for name, pattern in PATTERNS:
        for match in pattern.finditer(text):
            if name != "card" or luhn_valid(match[0]):
                return name
    return None


def luhn_valid(number: str) -> bool:
    """Check digit of payment card numbers (ISO/IEC 7812)."""
    digits = [int(char) for char in number if char.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


class SafetyFilter:
    """One choice's filter. `verdict` names what was found, empty while nothing was."""

    __slots__ = ("_held", "_mode", "_safety", "_unread", "blocked", "verdict")

    def __init__(self, mode: SafetyMode, safety: Safety) -> None:
        self._mode = mode
        self._safety = safety
        self._held = ""
        self._unread = ""
        self.blocked = False
        self.verdict = ""

    async def feed(self, text: str) -> str:
        """Return what may be shown now."""
        if self.blocked:
            return ""
        self._held += text
        self._unread += text
        if not await self._passes(final=False):
            return ""
        ready = max(0, len(self._held) - HOLD_BACK_CHARS)
        shown, self._held = self._held[:ready], self._held[ready:]
        return shown

    async def close(self) -> str:
        """Look at the rest and return it, unless it is blocked."""
        passes = not self.blocked and await self._passes(final=True)
        shown, self._held = (self._held if passes else ""), ""
        return shown

    async def _passes(self, *, final: bool) -> bool:
        self._found(find_pattern(self._held))
        if self._unread and (final or len(self._unread) >= CLASSIFY_CHARS):
            text, self._unread = self._unread, ""
            self._found(await self._classify(text))
        return not self.blocked

    async def _classify(self, text: str) -> str | None:
        try:
            score = await self._safety.score(text)
        except TimeoutError:
            self.verdict = self.verdict or UNCHECKED
            return None
        return "abuse" if score >= ABUSE_SCORE_MIN else None

    def _found(self, name: str | None) -> None:
        if name is None:
            return
        self.verdict = name
        self.blocked = self._mode == "block"
        if self.blocked:
            self._held = ""
