"""What size classes did, in words and rows for the page."""

from typing import NamedTuple

from controlplane.kernel.money import usd_short
from controlplane.kernel.rules import SIZE_CLASSES
from controlplane.routing.sizing import HOURS, SizesJson, SizeTally
from frontend.shared.formats import MISSING, count, percent, significant

HEADS = " | ".join(
    ("Organization", "#Requests", "#Small", "#Medium", "#Large")
    + ("#Retried", "#Thumbs down", "#Named", "#Did not fit", "#Saved")
)


class SizeRow(NamedTuple):
    """Requests of one tenant, or of all, by size class; and what the classes saved."""

    name: str
    requests: str
    classes: list[str]
    retries: str
    thumbs_down: str
    named: str
    bounds: str
    saved: str


class SizePanel(NamedTuple):
    """`facts` are pairs of a term and its value; `note` says of which requests."""

    facts: list[tuple[str, str]]
    rows: list[SizeRow]
    note: str
    heads: str = HEADS


def size_panel(found: SizesJson) -> SizePanel:
    total, told = found.total, [
        MISSING if each is None else f"{significant(each)} µs" for each in found.us
    ]  # fmt: skip
    facts = [
        ("Decision, p50 / p95 / p99", " / ".join(told)),
        ("Moved up by a retry", percent(total.retries, total.requests)),
        ("Moved up by a thumbs-down", percent(total.thumbs_down, total.requests)),
        ("Saved", _saved(total)),
    ]
    if total.shadow:
        facts.append(("In shadow", count(total.shadow)))
        facts.append(
            ("The choices would have saved", _money(total.largest_nano, total.chosen_nano))
        )
    if total.unpriced:
        facts.append(("Without a price", count(total.unpriced)))
    sample = "" if found.complete else "the newest requests of "
    rows = [_row("All", total), *(_row(one.name, one) for one in found.organizations)]
    return SizePanel(facts, rows, f"{sample}the last {HOURS} hours")


def _row(name: str, tally: SizeTally) -> SizeRow:
    return SizeRow(
        name=name,
        requests=count(tally.requests),
        classes=[
            f"{count(tally.chosen[each])} / {count(tally.served[each])}" for each in SIZE_CLASSES
        ],
        retries=count(tally.retries),
        thumbs_down=count(tally.thumbs_down),
        named=count(tally.named),
        bounds=count(tally.bounds),
        saved=_saved(tally),
    )


def _saved(tally: SizeTally) -> str:
    return _money(tally.largest_nano, tally.cost_nano)


def _money(whole: int, paid: int) -> str:
    """What is left of the cost of the largest model for everything."""
    sign = "−" if paid > whole else ""
    return f"{sign}{usd_short(abs(whole - paid))} ({percent(whole - paid, whole)})"
