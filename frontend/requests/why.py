"""Why one request went as it did: which rule admitted, routed, retried, refused and priced it.

Sentences made of what was recorded; nothing is asked of the gateway and nothing is guessed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from controlplane.billing.ledger.models import JournalEntry, Transfer, TransferKind
from controlplane.catalog.models import PriceVersion
from controlplane.kernel.money import usd_short, usd_text
from controlplane.kernel.objectives.counting import OWN_LIMITS
from controlplane.kernel.price import PERMILLE, Price, scaled
from controlplane.kernel.receipt import NONE, SERVED, Miss, PromptChange, Receipt
from controlplane.kernel.rules import DIRECT
from controlplane.kernel.statuses import CLIENT_LEFT, FAILED_FROM
from controlplane.telemetry.models import RequestRecord
from frontend.requests.receipt import size_words
from frontend.requests.refused import Door, Refused
from frontend.shared import formats
from frontend.shared.wordings import WORDINGS

ELSEWHERE = "Another tenant sent the same beginning recently; tenants never share a cache."
NANO_PER_PICO_MILLION = 1_000
ENDINGS = {
    "stop": "The model ended the response or reached a stop sequence.",
    "length": "The response stopped at max_tokens.",
    "tool_calls": "The model ended with tool calls.",
    "content_filter": "The safety layer ended the response.",
}


@dataclass(frozen=True)
class MissWords:
    """A sentence, advice, figures, and the text around the change where the project keeps it."""

    sentence: str
    advice: str
    elsewhere: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    around: PromptChange | None = None


def read_miss(found: Miss | None, *, staff: bool) -> MissWords | None:
    """From a request's receipt; None where nothing was missed, or for no cause that is known here.

    What other tenants sent is for staff alone.
    """
    if found is None or found.cause not in WORDINGS.causes:
        return None
    sentence, advice = WORDINGS.causes[found.cause]
    return MissWords(
        sentence=sentence,
        advice=advice,
        elsewhere=ELSEWHERE if staff and found.elsewhere else "",
        facts=_facts(found),
        around=found.around,
    )


def _facts(found: Miss) -> list[tuple[str, str]]:
    facts = []
    if found.missed_tokens:
        facts.append(("Not cached", f"{formats.count(found.missed_tokens)} tokens"))
    if found.avoidable_tokens:
        facts += [
            ("Of these avoidable", f"{formats.count(found.avoidable_tokens)} tokens"),
            ("Cost of the miss", usd_short(found.cost_nano)),
            ("Time to compute them", formats.duration(found.prefill_ms * 1_000)),
        ]
    if found.token is not None and found.block is not None:
        token, block = formats.count(found.token + 1), formats.count(found.block + 1)
        facts.append(("Differs from", f"token {token}, block {block}"))
    return facts


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
    receipt: Receipt = NONE
    refused: Refused | None = None
    budget: Sequence[str] = ()

    def line(self, *kinds: TransferKind) -> Transfer | None:
        """The first ledger line of these kinds."""
        return next((line for line in self.lines if line.kind in kinds), None)


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
        Reason("Charged", list(_booked(known))),
    )
    return [reason for reason in found if reason.sentences]


def _admitted(known: Evidence) -> Reason:
    record, hold = known.record, known.line(TransferKind.HOLD)
    who = f"The key “{known.key_label}”" + (f" of project {known.project}" if known.project else "")
    if record.status >= FAILED_FROM and (not record.model or record.error_code in OWN_LIMITS):
        return Reason("Admitted", [f"{who} was valid, but the request was refused."], "bad")
    sentences = [f"{who} may use this model and was within its limits."]
    if hold is None:
        if record.status < FAILED_FROM:
            sentences.append("No budget applies, so nothing was held.")
    else:
        number = len(hold.budgets or ())
        where = f" in {number} budget{'s' if number > 1 else ''}" if number else ""
        sentences.append(f"Its maximum cost, {usd_short(hold.amount)}, was held{where}.")
        if others := hold.others:
            names = ", ".join(sorted(others))
            sentences.append(f"This covers the other models that could have served it: {names}.")
    if template := known.receipt.prompt:
        sentences.append(f"Its prompt was assembled from the template {template}.")
    if masked := known.receipt.masked:
        kinds = ", ".join(f"{count} of {kind}" for kind, count in masked.items())
        sentences.append(f"A policy of its project masked {kinds} on the way to the model.")
    return Reason("Admitted", sentences)


def _routed(known: Evidence) -> Iterator[str]:
    record, receipt = known.record, known.receipt
    if not record.model:
        return
    if record.route in (DIRECT, ""):
        yield f"No rule matched: the request named the model {receipt.asked or record.model}."
    else:
        asked = f", asked for as “{receipt.asked}”" if receipt.asked else ""
        yield f"The rule {record.route} was the first to match{asked}."
    if told := size_words(receipt.size):
        yield f"It asked for the size class of the request ({told})."
    for step in receipt.steps:
        where = " in pool ".join(filter(None, (step.model, step.pool)))
        if step.reason == SERVED:
            yield f"Step {step.step} served it: {where}."
        else:
            yield f"Step {step.step}, {where}, was passed over: {step.reason}."


def _waited(known: Evidence) -> Iterator[str]:
    queue = known.receipt.queue
    if queue is None:
        return
    guess = queue.estimate_ms
    told = "" if guess is None else f", which was expected to take {_ms(guess)}"
    wait = _ms(queue.wait_ms)
    yield f"Every node was full: it waited {wait} with {queue.position} before it{told}."


def _placed(known: Evidence) -> Iterator[str]:
    if why := known.receipt.why:
        yield why if why.endswith(".") else f"{why}."


def _retried(known: Evidence) -> Iterator[str]:
    attempts = known.receipt.attempts
    for attempt in attempts:
        why = f": {attempt.reason}" if attempt.reason else ""
        yield f"{attempt.node} did not finish{why}."
    if attempts and known.record.status < FAILED_FROM:
        served = known.receipt.node or "another"
        yield f"It was retried on {served}; only that attempt is charged."


def _ended(known: Evidence) -> Reason:
    record = known.record
    if record.status == CLIENT_LEFT:
        told = "The client disconnected, and generation stopped."
        return Reason("Ended", [told, _charged_as_far(record)], "warn")
    policy = known.receipt.policy
    if record.status < FAILED_FROM:
        words = ENDINGS.get(record.finish)
        if policy == "calls_max":
            words = (
                "A policy of its project ended the response: it had as many tool calls as it may."
            )
        return Reason("Ended", [words] if words else [])
    named = f"It was answered {record.status} {record.error_code}".rstrip() + "."
    words = WORDINGS.lacks.get(known.receipt.lack) or WORDINGS.refusals.get(record.error_code)
    sentences = [words] if words else []
    if policy:
        sentences.append(f"The policy: {policy}.")
    door = None
    if known.refused is not None:
        sentences, door = [*known.refused.sentences, *known.budget], known.refused.door
    step = "Refused" if not record.output_tokens else "Interrupted"
    return Reason(step, [named, *sentences, _charged_as_far(record)], "bad", door)


def _charged_as_far(record: RequestRecord) -> str:
    if record.cost_nano:
        return "The output until then is charged."
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
        yield "The engine reported no token counts, so they were estimated from the text."


def _terms(line: Transfer, price: PriceVersion | None) -> str:
    """Whose price it is and what it was multiplied with, as far as the version tells."""
    if price is None:
        return ""
    told = ", agreed for this project alone" if price.project_id else ""
    listed = msgspec.convert(price, Price, from_attributes=True)
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
        yield "The hold is not resolved yet."
    for entry in known.reversals:
        by = f" by {entry.actor_label}" if entry.actor_label else ""
        yield f"{usd_short(entry.amount)} was reversed{by}{entry.reason and ': '}{entry.reason}"


_RESOLVING = (TransferKind.SETTLE, TransferKind.RELEASE, TransferKind.EXPIRE)


def _line_words(line: Transfer, hold: Transfer | None) -> Iterator[str]:
    amount = usd_short(line.amount)
    match line.kind:
        case TransferKind.SETTLE:
            rest = hold.amount - line.amount if hold else 0
            back = f"; {usd_short(rest)} of the hold was released" if rest else ""
            yield f"{amount} was charged before the end of the response was sent{back}."
        case TransferKind.RELEASE:
            yield f"The whole hold of {amount} was released: nothing was delivered."
        case TransferKind.EXPIRE:
            yield f"The hold of {amount} expired: gateway and node did not report in time."
        case TransferKind.OVERAGE:
            yield f"{amount} beyond the hold was also charged."
        case TransferKind.LATE:
            yield f"{amount} was charged later, from the node's report."


def _ms(value: int) -> str:
    return formats.duration(value * formats.US_PER_MS)
