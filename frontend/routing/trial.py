"""What a dry run of rules found, in words and tables."""

from collections.abc import Iterable, Iterator

from controlplane.kernel.money import usd_short
from controlplane.routing.dryrun import MoveTally
from controlplane.routing.selectors import CountedMove, DryRunJson, MovedGroup, SampleJson
from controlplane.routing.tallies import GROUPS_SHOWN_MAX
from frontend.shared.formats import count, percent
from frontend.shared.panels import TablePanel
from frontend.shared.versions import TrialShown

HEAD = (
    "Requests", "Moved", "Share", "Treated differently", "Cost", "Cost, cold", "Cached tokens lost",
)  # fmt: skip


def trial_of(found: DryRunJson) -> TrialShown:
    requests, moved, share, treated, cost, cold, lost = _cells(found.total)
    sample, used = found.sample, ["Rule", "Live", f"Version {found.version}"]
    return TrialShown(
        beside=f"against version {found.against}" if found.against else "against no rules",
        start=sample.start,
        end=sample.end,
        complete=sample.complete,
        requests=found.total.requests,
        facts=[
            ("Judged", requests),
            ("Moved to another model or pool", f"{moved} ({share})"),
            ("Treated differently", treated),
            ("Cost, same cache hits", cost),
            ("Cost, moved requests uncached", cold),
            ("Cached tokens lost at first", lost),
        ],
        told=list(_told(found)),
        tables=[
            _table("Moves", "Move", ((_move_words(one), one) for one in found.moves)),
            _table("Organizations", "Organization", _named(found.organizations)),
            _table("Projects", "Project", _named(found.projects)),
            _table("Regions", "Region", _named(found.regions)),
            TablePanel(
                "rules",
                "Rules matched",
                used,
                [[use.name, str(use.before), str(use.after)] for use in found.rules],
            ),
        ],
        notes=[*_left_out(sample), *found.notes],
        nothing=_nothing(sample) if sample.requests else TrialShown.nothing,
    )


def _nothing(sample: SampleJson) -> str:
    return (
        f"None of the {count(sample.requests)} requests of this range can be judged: "
        f"{count(sample.sizes_unknown)} failed before their size was known, of "
        f"{count(sample.alias_unknown)} the alias is not known."
    )


def _told(found: DryRunJson) -> Iterator[tuple[str, str]]:
    """Tones and sentences."""
    total = found.total
    if not total.moved and not total.treated:
        yield "ok", "No request would have been treated differently."
    if gone := found.out_of_service:
        yield "bad", f"{count(gone)} requests would go to a model that is not served."
    for place in found.unserved[:GROUPS_SHOWN_MAX]:
        where = f"{place.model} in {place.pool}" if place.pool else place.model
        share = percent(place.requests, total.requests)
        told = f"{share} of the judged requests ({count(place.requests)}) would first go to {where}"
        yield "warn", f"{told}, which no node serves now."
    if left := found.leave_region:
        told = f"{count(left)} moved requests would leave their region"
        yield "warn", f"{told}: their new pool has no connected node there."


def _named(groups: Iterable[MovedGroup]) -> Iterator[tuple[str, MoveTally]]:
    return ((one.name, one) for one in groups)


def _table(title: str, one: str, rows: Iterable[tuple[str, MoveTally]]) -> TablePanel:
    body = [[name, *_cells(tally)] for name, tally in rows]
    return TablePanel(one.lower(), title, [one, *HEAD], body)


def _left_out(sample: SampleJson) -> Iterator[str]:
    if sample.sizes_unknown:
        told = "requests failed before their size was known; they are left out."
        yield f"{count(sample.sizes_unknown)} {told}"
    if sample.alias_unknown:
        told = "requests the alias is not known; they are left out."
        yield f"Of {count(sample.alias_unknown)} {told}"
    if sample.unpriced:
        told = "requests have no price on one side; their cost counts as zero."
        yield f"{count(sample.unpriced)} {told}"


def _move_words(move: CountedMove) -> str:
    before, after = move.before, move.after
    return f"{before.model} in {before.pool or '?'} → {after.model} in {after.pool or '?'}"


def _cells(tally: MoveTally) -> list[str]:
    return [
        count(tally.requests),
        count(tally.moved),
        percent(tally.moved, tally.requests),
        count(tally.treated),
        _change(tally.after_nano - tally.before_nano),
        _change(tally.cold_nano - tally.before_nano),
        count(tally.cached_lost),
    ]


def _change(nano: int) -> str:
    sign = "+" if nano > 0 else "−" if nano < 0 else ""
    return f"{sign}{usd_short(abs(nano))}"
