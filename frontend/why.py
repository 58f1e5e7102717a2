"""Why one request went as it did: which rule admitted, routed, retried, refused and priced it.

Sentences made of what was recorded; nothing is asked of the gateway and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from controlplane.billing.models import JournalEntry, Transfer, TransferKind
from controlplane.catalog.models import PriceVersion
from controlplane.kernel.money import usd_short, usd_text
from controlplane.kernel.objectives import OWN_LIMITS
from controlplane.kernel.price import PERMILLE, Price, scaled
from controlplane.kernel.rules import DIRECT
from controlplane.kernel.statuses import CLIENT_LEFT, FAILED_FROM
from controlplane.telemetry.models import RequestRecord
from frontend import formats
from frontend.refusal_words import LACKS, REFUSALS
from frontend.refused import Door, Refused

NANO_PER_PICO_MILLION = 1_000
ENDINGS = {
    "stop": "The model ended its answer by itself or at a stop sequence.",
    "length": "The answer was cut at its bound of output tokens.",
    "tool_calls": "The model ended with calls of tools.",
    "content_filter": "The safety check ended the answer.",
}
SERVED = "served"


@dataclass(frozen=True)
class Reason:
    """One step of the request and its sentences; `tone` marks what went wrong.

    `door` leads to where it can be changed.
    """

    step: str
    sentences: list[str]
    tone: str = "ok"
    door: Door | None = None


@dataclass(frozen=True)
class Evidence:
    """What is known of a request. `price` is the version that its charge names, if it is kept.

    `refused` is there where a limit refused it, and its record says which; `budget` tells of the
    budget that it names.
    """

    record: RequestRecord
    key_label: str
    project: str
    lines: Sequence[Transfer]
    reversals: Sequence[JournalEntry] = ()
    price: PriceVersion | None = None
    receipt: dict[str, Any] = field(default_factory=dict)
    refused: Refused | None = None
    budget: Sequence[str] = ()

    def line(self, *kinds: TransferKind) -> Transfer | None:
        """The first ledger line of these kinds."""
        return next((line for line in self.lines if line.kind in kinds), None)


def read_document(receipt: bytes) -> dict[str, Any]:
    """The receipt as data; empty where there is none or it cannot be read."""
    try:
        return msgspec.json.decode(receipt, type=dict[str, Any]) if receipt else {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def reasons(known: Evidence) -> list[Reason]:
    """The steps in their order, those that did not happen left out."""
    found = (
        _admitted(known),
        Reason("Routed", list(_routed(known))),
        Reason("Waited", list(_waited(known))),
        Reason("Placed", list(_placed(known))),
        Reason("Retried", list(_retried(known)), "warn"),
        _ended(known),
        Reason("Priced", list(_priced(known))),
        Reason("Booked", list(_booked(known))),
    )
    return [reason for reason in found if reason.sentences]


def _admitted(known: Evidence) -> Reason:
    record, hold = known.record, known.line(TransferKind.HOLD)
    who = f"The key “{known.key_label}”" + (f" of project {known.project}" if known.project else "")
    if record.status >= FAILED_FROM and (not record.model or record.error_code in OWN_LIMITS):
        return Reason("Admitted", [f"{who} was known, and the request was not let in."], "bad")
    sentences = [f"{who} may use this model and was within its limits."]
    if hold is None:
        if record.status < FAILED_FROM:
            sentences.append("No budget limits it, so nothing was held before it ran.")
    else:
        number = len(hold.budgets or ())
        where = f" in {number} budget{'s' if number > 1 else ''}" if number else ""
        sentences.append(f"The most it could cost, {usd_short(hold.amount)}, was held{where}.")
        if others := hold.others:
            names = ", ".join(sorted(others))
            sentences.append(f"That covers the other models that might have served it: {names}.")
    if template := known.receipt.get("prompt"):
        sentences.append(f"Its prompt was put together from the template {template}.")
    return Reason("Admitted", sentences)


def _routed(known: Evidence) -> Iterator[str]:
    record, told = known.record, known.receipt
    if not record.model:
        return
    if record.route in (DIRECT, ""):
        yield f"No rule matched it: it named the model {record.model} itself."
    else:
        asked = f", asked for as “{told['asked']}”" if told.get("asked") else ""
        yield f"The rule {record.route} was the first that matched{asked}."
    for step in _rows(told.get("steps")):
        where = " in pool ".join(str(step[name]) for name in ("model", "pool") if step.get(name))
        if step.get("reason") == SERVED:
            yield f"Step {step.get('step')} served it: {where}."
        else:
            yield f"Step {step.get('step')}, {where}, was passed over: {step.get('reason')}."


def _waited(known: Evidence) -> Iterator[str]:
    queue = known.receipt.get("queue")
    if not isinstance(queue, dict):
        return
    wait_ms, before = queue.get("wait_ms", 0), queue.get("position", 0)
    guess = queue.get("estimate_ms")
    told = "" if guess is None else f", which was expected to take {_ms(guess)}"
    yield f"Every node was full: it waited {_ms(wait_ms)} with {before} before it{told}."


def _placed(known: Evidence) -> Iterator[str]:
    if why := known.receipt.get("why"):
        yield str(why) if str(why).endswith(".") else f"{why}."


def _retried(known: Evidence) -> Iterator[str]:
    attempts = _rows(known.receipt.get("attempts"))
    for attempt in attempts:
        why = f": {attempt['reason']}" if attempt.get("reason") else ""
        yield f"{attempt.get('node', '')} did not finish it{why}."
    if attempts and known.record.status < FAILED_FROM:
        served = known.receipt.get("node") or "another"
        yield f"It was tried again, and {served} served it; only that is charged."


def _ended(known: Evidence) -> Reason:
    record = known.record
    if record.status == CLIENT_LEFT:
        told = "The client hung up, and generation was stopped at once."
        return Reason("Ended", [told, _charged_as_far(record)], "warn")
    if record.status < FAILED_FROM:
        return Reason("Ended", [words] if (words := ENDINGS.get(record.finish)) else [])
    named = f"It was answered {record.status} {record.error_code}".rstrip() + "."
    words = LACKS.get(str(known.receipt.get("lack"))) or REFUSALS.get(record.error_code)
    sentences = [words] if words else []
    door = None
    if known.refused is not None:
        sentences, door = [*known.refused.sentences, *known.budget], known.refused.door
    step = "Refused" if not record.output_tokens else "Broken off"
    return Reason(step, [named, *sentences, _charged_as_far(record)], "bad", door)


def _charged_as_far(record: RequestRecord) -> str:
    if record.cost_nano:
        return "What had been made until then is charged."
    return "Nothing is charged."


def _priced(known: Evidence) -> Iterator[str]:
    line = known.line(TransferKind.SETTLE, TransferKind.LATE)
    if line is None:
        return
    rates = ", ".join(
        f"{usd_short(pico * NANO_PER_PICO_MILLION)} {word}"
        for pico, word in (
            (line.input_pico, "in"),
            (line.cached_pico, "in from the cache"),
            (line.output_pico, "out"),
        )
    )
    terms = _terms(line, known.price)
    version = f"Version {line.price_version} of the prices of {line.model}{terms}"
    yield f"{version}: {rates}, each for a million tokens."
    parts = (
        (line.uncached, line.input_pico, "not cached"),
        (line.cached, line.cached_pico, "cached"),
        (line.output, line.output_pico, "out"),
    )
    sums = " + ".join(
        f"{tokens:,} {word} x {usd_short(pico * NANO_PER_PICO_MILLION)}"
        for tokens, pico, word in parts
        if tokens
    )
    if sums:
        yield f"({sums}) / 1,000,000 = ${usd_text(known.record.cost_nano)}."
    if line.source == "estimate":
        yield "The engine told no counts, so they were estimated from the text."


def _terms(line: Transfer, price: PriceVersion | None) -> str:
    """Whose price it is and what it was multiplied with, as far as the version tells."""
    if price is None:
        return ""
    told = ", agreed for this project alone" if price.project_id else ""
    listed = Price(
        version=price.version,
        input_pico=price.input_pico,
        cached_pico=price.cached_pico,
        output_pico=price.output_pico,
    )
    paid = (line.input_pico, line.cached_pico, line.output_pico)
    for permille, why in (
        (PERMILLE, ""),
        (price.batch_permille, "for low priority"),
        (price.priority_permille, "for high priority"),
    ):
        one = scaled(listed, permille)
        if (one.input_pico, one.cached_pico, one.output_pico) == paid:
            return f"{told}, times {permille / PERMILLE:g} {why}" if why else told
    return told


def _booked(known: Evidence) -> Iterator[str]:
    hold = known.line(TransferKind.HOLD)
    for line in known.lines:
        yield from _line_words(line, hold)
    if known.lines and known.line(*_RESOLVING) is None:
        yield "Nothing has resolved the hold yet."
    for entry in known.reversals:
        by = f" by {entry.actor_label}" if entry.actor_label else ""
        yield f"{usd_short(entry.amount)} was given back{by}{entry.reason and ': '}{entry.reason}"


_RESOLVING = (TransferKind.SETTLE, TransferKind.RELEASE, TransferKind.EXPIRE)


def _line_words(line: Transfer, hold: Transfer | None) -> Iterator[str]:
    amount = usd_short(line.amount)
    match line.kind:
        case TransferKind.SETTLE:
            rest = hold.amount - line.amount if hold else 0
            back = f"; {usd_short(rest)} of the hold went back" if rest else ""
            yield f"{amount} was charged before the answer's end was sent{back}."
        case TransferKind.RELEASE:
            yield f"The whole hold of {amount} was released: nothing was delivered."
        case TransferKind.EXPIRE:
            yield f"The hold of {amount} expired: neither gateway nor node had reported in time."
        case TransferKind.OVERAGE:
            yield f"{amount} more than was held was charged besides."
        case TransferKind.LATE:
            yield f"{amount} was charged later, from the node's own report."


def _rows(value: object) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _ms(value: object) -> str:
    if not isinstance(value, int | float):
        return formats.MISSING
    return formats.duration(value * formats.US_PER_MS)
