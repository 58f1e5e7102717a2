"""Nodes and pools as the Fleet page tells them: tone and words of each state, figures, actions."""

from dataclasses import dataclass
from datetime import datetime
from math import ceil

from controlplane.fleet.models import DigestState
from controlplane.fleet.overview import FRESH_S, Freshness, NodeView, Signal
from controlplane.fleet.selectors import cold_starts
from frontend.shared import formats
from inference.contract.version import VERSION

# What an engine that computes nothing says.
NO_DEVICE = "none"
GIGA, TERA = 1e9, 1e12
# As the page calls the rates of `ComputePath`.
MEASURED = {"alone": "decode", "prefill": "prefill"}
FACTS_SUMMED = ("running", "waiting")
STATES = {
    "ready": ("ok", "ready"),
    "pending": ("warn", "waiting for approval"),
    "held": ("warn", "held back"),
    "draining": ("warn", "draining"),
    "drained": ("off", "drained"),
    "leaving": ("off", "leaving"),
    "quarantined": ("bad", "quarantined"),
    "away": ("bad", "not connected"),
    "new": ("off", "never connected"),
}
BREAKERS = {"open": ("bad", "open"), "half_open": ("warn", "trying"), "closed": ("ok", "closed")}


# Of one pool; others are found by name.
NODES_DRAWN_MAX = 50
# What can be done with a node, and what is likeliest in a state.
ACTIONS = {
    "approve": "Approve",
    "drain": "Drain",
    "undrain": "Undrain",
    "forgive": "Release from quarantine",
    "models": "Models",
    "remove": "Remove",
}
FIRST = {
    "pending": "approve",
    "quarantined": "forgive",
    "draining": "undrain",
    "drained": "undrain",
}


@dataclass(frozen=True)
class NodeRow:
    """One line of a pool's table."""

    view: NodeView

    @property
    def status(self) -> tuple[str, str]:
        return STATES[self.view.state]

    @property
    def engine(self) -> str:
        facts = self.view.node.facts
        said = (str(facts.get(key) or "") for key in ("engine", "device"))
        words = " on ".join(word for word in said if word not in ("", NO_DEVICE))
        kernels = self.view.path.get("kernels", "")
        return words if kernels in words else f"{words}, {kernels}"

    @property
    def release(self) -> tuple[str, bool] | None:
        """Its release, and whether this is another; None of a node that tells none."""
        told = str(self.view.node.facts.get("release") or "")
        return (told, told != VERSION) if told else None

    @property
    def models(self) -> list[tuple[str, str]]:
        waits = {DigestState.WAITING: "digest waiting for approval", DigestState.REFUSED: "refused"}
        unknown = dict.fromkeys(self.view.unknown_models, "not in the catalog")
        told = {name: waits[state] for name, state in self.view.undecided.items()} | unknown
        return [(name, told.get(name, "")) for name in self.view.node.facts.get("models", [])]

    @property
    def jobs(self) -> str:
        if not self.view.links:
            return formats.MISSING
        return f"{self.view.total('active'):,} / {self.view.total('credits'):,}"

    @property
    def batch(self) -> str:
        """Sequences in its last step, and those that waited on it for a place."""
        running, waiting = (self.view.latest(fact) for fact in ("running", "waiting"))
        if running is None:
            return formats.MISSING
        return f"{running:,} + {waiting or 0:,}"

    @property
    def tokens_per_s(self) -> str:
        """Rate of its last step, a token for each sequence of it."""
        running, step_us = (self.view.latest(fact) for fact in ("running", "step_us"))
        if not running or not step_us:
            return formats.MISSING
        return formats.rate(running * formats.US_PER_S / step_us)

    @property
    def measured(self) -> list[str]:
        """Rates of one request that ran alone at its start."""
        found = {word: self.view.path.get(f"{phase}_tokens_s") for word, phase in MEASURED.items()}
        return [f"{word} {formats.rate(rate)}" for word, rate in found.items() if rate]

    @property
    def kv(self) -> str:
        share = self.view.kv_share
        return formats.MISSING if share is None else formats.percent(share, 1)

    @property
    def roofline(self) -> list[tuple[str, str, str]]:
        """How near it came to its device's ceilings, and what these are; empty where it told none.

        Of the last seconds of steps of a kind, also where these are over for long.
        """
        ceilings = self.view.node.facts.get("ceilings")
        if not isinstance(ceilings, dict):
            return []
        reading = f"{formats.significant(ceilings['read_bytes_s'] / GIGA)} GB/s"
        computing = f"{formats.significant(ceilings['flop_s'] / TERA)} TFLOP/s"
        return [
            (_share_words("decode", "bandwidth", self.view.share("decode_share")), reading,
             f"decode, of {reading}; {ceilings['source']}"),
            (_share_words("prefill", "compute", self.view.share("prefill_share")), computing,
             f"prefill, of {computing}; {ceilings['source']}"),
        ]  # fmt: skip

    @property
    def breaker(self) -> tuple[str, str] | None:
        """Tone and word; None where no gateway has it."""
        return BREAKERS.get(self.view.breaker)

    @property
    def breaker_cause(self) -> str:
        told = (str(facts.get("breaker_cause") or "") for facts in self.view.links.values())
        return next((cause for cause in told if cause), "") if self.view.breaker != "closed" else ""

    @property
    def cold_start(self) -> str:
        took = self.view.node.facts.get("cold_start_ms")
        return formats.duration(took * formats.US_PER_MS) if took else formats.MISSING

    @property
    def actions(self) -> list[tuple[str, str]]:
        """Names and words of what can be done with it now, the likeliest first."""
        names = (FIRST.get(self.view.state, "drain"), "models", "remove")
        return [(name, ACTIONS[name]) for name in names]


def _share_words(phase: str, what: str, share: float | None) -> str:
    if share is None:
        return f"no {phase} yet"
    return f"{formats.percent(share, 1)} {what}"


@dataclass(frozen=True)
class PoolPanel:
    """A pool with its figures and rows, of which those are `drawn` that need somebody first."""

    signal: Signal
    rows: list[NodeRow]
    drawn: list[NodeRow]
    cold_start_p50: str
    cold_start_p95: str
    starts: int

    @property
    def hidden(self) -> int:
        return len(self.rows) - len(self.drawn)

    @property
    def utilization(self) -> str:
        """Jobs in flight of those that ready nodes take at once."""
        load = self.signal.load
        return formats.percent(load.in_flight, load.credits)

    @property
    def batch(self) -> str:
        """Sequences under way on its nodes, and those that wait on them for a place."""
        sums = [sum(row.view.latest(fact) or 0 for row in self.rows) for fact in FACTS_SUMMED]
        return " + ".join(f"{each:,}" for each in sums)

    @property
    def kv(self) -> str:
        load = self.signal.load
        return formats.percent(load.kv_share, 1) if load.nodes_ready else formats.MISSING


@dataclass(frozen=True)
class SourceRow:
    """A gateway as a source of figures: how old they may be, and what it had to leave out."""

    source: Freshness
    age: str
    tone: str
    words: str


def source_row(source: Freshness, now: datetime) -> SourceRow:
    """A gateway's line in the table of freshness."""
    age_s = source.age_s(now)
    lost = source.rows_dropped + source.series_dropped
    words, tone = ("fresh", "ok") if age_s <= FRESH_S else ("late", "bad")
    if lost and tone == "ok":
        words, tone = "incomplete", "warn"
    return SourceRow(source, formats.duration(age_s * formats.US_PER_S), tone, words)


def pool_panel(signal: Signal, sought: str = "") -> PoolPanel:
    """With those of its nodes whose names have the text in them, as many as are drawn."""
    starts = sorted(cold_starts(pool=signal.pool.name))
    rows = [NodeRow(view) for view in signal.view.nodes]
    p50, p95 = (_nearest(starts, share) for share in (0.5, 0.95))
    drawn = [row for row in rows if sought in row.view.node.name]
    if len(drawn) > NODES_DRAWN_MAX:
        drawn = sorted(drawn, key=lambda row: row.view.ready)[:NODES_DRAWN_MAX]
    return PoolPanel(signal, rows, drawn, p50, p95, len(starts))


def _nearest(sorted_ms: list[int], share: float) -> str:
    """The nearest-rank percentile: the least value that `share` of all do not exceed."""
    if not sorted_ms:
        return formats.MISSING
    return formats.duration(sorted_ms[ceil(share * len(sorted_ms)) - 1] * formats.US_PER_MS)
