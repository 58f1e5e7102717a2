"""Personal data in a text, by form and, where a kind has one, by its check digits.

Every pattern is bounded, and a long text is searched a part at a time, so that no search holds the
interpreter for long.
"""

import re
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from typing import Literal, get_args

Personal = Literal["card", "email", "iban", "ip", "phone", "ssn"]
KINDS: tuple[Personal, ...] = get_args(Personal)
# Longer than any match; one that begins in a part is found with it.
PART_CHARS = 16_384
MATCH_CHARS_MAX = 512
CARD_DIGITS_MIN = 13
PHONE_DIGITS = range(8, 16)
IBAN_CHARS_MIN, IBAN_PRIME = 15, 97

EMAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{2,63}){1,4}\b")
IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[0-9A-Z]{4}){3,7}(?: ?[0-9A-Z]{1,3})?\b")
SSN = re.compile(r"\b\d{3}-\d{2}-\d{4}\b")
# A lookahead, since a number before the card, or after it, must not hide it.
CARD = re.compile(r"\b(?=((?:\d[ -]?){12,18}\d)\b)", re.ASCII)
_IP = re.compile(
    r"(?<![\w.:])(?:(?:\d{1,3}\.){3}\d{1,3}(?!\.?\w)|(?=[0-9A-Fa-f]*:)[0-9A-Fa-f:]{2,39}(?!\w))",
    re.ASCII,
)
# With the code of a country, or as ten digits in groups.
_PHONE = re.compile(
    r"(?<![\w+])(?:\+\d{1,3}(?:[ ./-]?\(?\d{1,5}\)?){2,6}|\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4})(?!\w)",
    re.ASCII,
)
_PATTERNS: dict[Personal, re.Pattern[str]] = {
    "card": CARD, "email": EMAIL, "iban": IBAN, "ip": _IP, "phone": _PHONE, "ssn": SSN,
}  # fmt: skip


def find_personal(text: str, kind: Personal) -> Iterator[tuple[int, int]]:
    """Start and end of each, from the left, none in another."""
    at = 0
    if kind == "email" and "@" not in text:
        return
    for part in range(0, len(text), PART_CHARS):
        at, stop = max(at, part), part + PART_CHARS
        while found := _PATTERNS[kind].search(text, at, stop + MATCH_CHARS_MAX):
            start = found.start()
            if start >= stop:
                break
            length = _LENGTHS[kind](found[found.re.groups])
            at = start + (length or 1)
            if length:
                yield start, at


def _whole(text: str) -> int:
    return len(text)


def _longest(text: str, separators: str, fits: Callable[[str], bool]) -> int:
    """Length of the longest start that fits and ends where a group does; 0 where none does: what
    stands behind it may look like another group.
    """
    ends = (place.start() for place in re.finditer(f"[{separators}]|$", text))
    return max((end for end in ends if fits(text[:end])), default=0)


def card_length(digits: str) -> int:
    """Length of the card number that the text begins with; 0 where there is none."""
    return _longest(digits, " -", _is_card)


def _is_card(text: str) -> bool:
    return sum(map(str.isdigit, text)) >= CARD_DIGITS_MIN and luhn_valid(text)


def luhn_valid(number: str) -> bool:
    """Check digit of payment card numbers (ISO/IEC 7812)."""
    digits = [int(char) for char in number if char.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _iban_length(text: str) -> int:
    return _longest(text, " ", _is_iban)


def _is_iban(text: str) -> bool:
    """By its check digits (ISO 13616)."""
    packed = text.replace(" ", "")
    turned = "".join(str(int(char, 36)) for char in packed[4:] + packed[:4])
    return len(packed) >= IBAN_CHARS_MIN and int(turned) % IBAN_PRIME == 1


def _phone_length(text: str) -> int:
    return _longest(text, " ./-", lambda part: sum(map(str.isdigit, part)) in PHONE_DIGITS)


def _ip_length(text: str) -> int:
    return len(text) if _is_address(text) else 0


def _is_address(text: str) -> bool:
    """Whether it is an IP address; `::` alone is more often something else."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return any(char != ":" for char in text)


_LENGTHS: dict[Personal, Callable[[str], int]] = {
    "card": card_length, "email": _whole, "iban": _iban_length, "ip": _ip_length,
    "phone": _phone_length, "ssn": _whole,
}  # fmt: skip
