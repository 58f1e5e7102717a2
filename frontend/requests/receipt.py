"""The route receipt as a sentence and rows for a page, and a request's ledger lines in words that
finance reads; the accounts' own names stay at hand. Data, never markup.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from controlplane.billing.ledger.accounts import account_text
from controlplane.billing.ledger.models import Transfer
from controlplane.kernel.receipt import NONE, Receipt, SizeBy, SizeChoice

INDEX_STATES = {
    "exact": "exact",
    "stale": "late for some nodes, whose recent prompts are assumed cached",
    "approximate": "approximate: of some nodes only what they were sent is known",
    "ring": "none; node chosen by the beginning of the prompt",
}
US_PER_MS = 1_000
OVERRULED: dict[SizeBy, str] = {
    "bounds": "served, since the request does not fit a smaller class",
    "request": "served, as the request asks",
    "thumbs_down": "served, since a smaller class's answer to its conversation was rated down",
    "retry": "served, since the same prompt was answered by a smaller class before",
    "shadow": "served, since the rule is in shadow",
}
COLUMNS = {
    "active": "Requests there",
    "active_ms": "Running requests, ms",
    "busy_ms": "Requests behind it, ms",
    "cached_tokens": "Cached tokens",
    "cost_ms": "Total cost, ms",
    "dur_ms": "Duration, ms",
    "evict_ms": "Evicted cache, ms",
    "overflow_ms": "Wait for capacity, ms",
    "prefill_ms": "This prompt, ms",
    "queued_tokens": "Tokens waiting",
    "wait_ms": "Waiting, ms",
}
RECEIVABLE = "receivable"
ID_CHARS_SHOWN = 12


@dataclass(frozen=True)
class Table:
    """Rows under one heading; the first cell of a row names it."""

    caption: str
    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class ReceiptRows:
    """Why in one sentence, then plain facts, then steps, attempts and the nodes weighed."""

    why: str = ""
    facts: list[tuple[str, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


def receipt_rows(receipt: Receipt) -> ReceiptRows | None:
    """None where routing left none, as for a refusal."""
    # Told in their own parts of the page.
    rest = msgspec.structs.replace(receipt, miss=None, limit=None, lack="", line=None)
    if rest == NONE:
        return None
    tables = (
        ("Reported by the client", rest.before),
        ("Steps of the rule, in order", rest.steps),
        ("Attempts, in order", rest.attempts),
        ("Candidate nodes, lowest cost first", _marked(rest)),
    )
    return ReceiptRows(
        why=rest.why,
        facts=[(name, _text(value)) for name, value in _facts(rest) if value not in (None, "")],
        tables=[_table(caption, rows) for caption, rows in tables if rows],
    )


def _facts(receipt: Receipt) -> list[tuple[str, object]]:
    queue, routed = receipt.queue, bool(receipt.node)
    return [
        ("Requested model", receipt.asked),
        ("Rule", receipt.rule),
        ("Size class", size_words(receipt.size)),
        ("Size class decision, µs", receipt.size and receipt.size.us),
        ("Prompt", receipt.prompt),
        ("Stored tools", ", ".join(receipt.tools)),
        ("Ignored fields", ", ".join(receipt.ignored)),
        ("Labels", ", ".join(f"{name}={text}" for name, text in receipt.labels.items())),
        ("Node", receipt.node),
        ("Prefill node", receipt.prefill),
        ("Prefix index", INDEX_STATES.get(receipt.index)),
        ("Cached tokens at the best node", receipt.available_tokens if routed else None),
        ("Predicted cached tokens", receipt.predicted_cached_tokens if routed else None),
        ("Delivered cached tokens", receipt.delivered_cached_tokens),
        ("Usage", receipt.usage),
        ("Reasoning tokens", receipt.reasoning_tokens or None),
        ("Images", receipt.images or None),
        ("First thought, ms", receipt.first_thought_us / US_PER_MS or None),
        ("First token of the answer, ms", receipt.first_answer_us / US_PER_MS or None),
        ("Queue wait, ms", queue and queue.wait_ms),
        ("Queue position", queue and queue.position),
        ("Estimated wait, ms", queue and queue.estimate_ms),
        ("Trace", receipt.trace),
    ]


def size_words(size: SizeChoice | None) -> str:
    """`code block, 3 tools, 2,100 tokens: large, p=0.91`, and what overruled it."""
    if size is None:
        return ""
    chosen = (
        f"{', '.join(size.why) or 'no feature stands out'}: {size.chosen}, p={size.probability:.2f}"
    )
    return chosen + (f"; {size.served} {OVERRULED[size.by]}" if size.by in OVERRULED else "")


def _marked(receipt: Receipt) -> tuple[msgspec.Struct, ...]:
    return tuple(
        msgspec.structs.replace(each, node=f"{each.node} (chosen)")
        if each.node == (receipt.prefill or receipt.node)
        else each
        for each in receipt.candidates
    )


def _table(caption: str, rows: Iterable[msgspec.Struct]) -> Table:
    """Columns are those of which the first row has something."""
    cells = [msgspec.structs.asdict(row) for row in rows]
    head = [name for name, value in cells[0].items() if value is not None]
    return Table(
        caption,
        [COLUMNS.get(name) or name.replace("_", " ").capitalize() for name in head],
        [[_text(row[name]) for name in head] for row in cells],
    )


def _text(value: object) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return str(value)


@dataclass(frozen=True)
class Account:
    """One side of a line: words, and the name that the ledger itself has for it."""

    words: str
    name: str


@dataclass(frozen=True)
class LedgerLine:
    """One transfer and its two accounts."""

    transfer: Transfer
    debit: Account
    credit: Account


def ledger_lines(
    transfers: Iterable[Transfer], *, organization: str, project: str
) -> list[LedgerLine]:
    """Lines of one request, whose organization and project have these names; empty is unknown."""
    payer = " / ".join(filter(None, (organization, project)))
    return [
        LedgerLine(line, _account(line.debit, payer), _account(line.credit, payer))
        for line in transfers
    ]


def account_names(lines: Iterable[LedgerLine]) -> list[Account]:
    """Each account once, in the order in which they come."""
    return list(dict.fromkeys(side for line in lines for side in (line.debit, line.credit)))


def _account(name: str, payer: str) -> Account:
    name = account_text(name)
    kind, _, of = name.partition(":")
    whose = (payer or of[:ID_CHARS_SHOWN]) if kind == RECEIVABLE else of
    return Account(f"{kind.capitalize()} · {whose}", name)
