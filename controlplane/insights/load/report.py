"""Runs and comparisons for people: tables and a plot as text, and one HTML file of its own."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from django.template import Context, Engine

from controlplane.insights.load.drive import LoadOutcome
from controlplane.insights.load.figures import PERCENT, SHARES, Record
from controlplane.insights.load.samples import LEFT, MS_PER_S, OK, UNFINISHED, percentile

PLOT_SHARES = (1, 10, 25, 50, 75, 90, 95, 99, 100)
PLOT_COLUMNS = 50
CHART_WIDTH, CHART_HEIGHT = 520, 180
RECENT = 100
PAGE = Path(__file__).parent / "report.html"


class ReportTable(NamedTuple):
    """Headings, and rows of as many cells: a name, numbers, and remarks under no heading."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def text(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        aligned = ["" if not place or not cell else ">" for place, cell in enumerate(self.head)]
        form = "  ".join(f"{{:{way}{width}}}" for way, width in zip(aligned, widths, strict=True))
        return "\n".join(form.format(*row).rstrip() for row in (self.head, *self.rows))


def progress_line(outcome: LoadOutcome) -> str:
    """Where a run is."""
    ended = [each for each in outcome.samples if each.code != UNFINISHED]
    done = [each for each in ended if each.code == OK]
    failed = sum(each.code not in (OK, LEFT) for each in ended)
    first_ms = percentile([each.ttft_s * MS_PER_S for each in done[-RECENT:] if each.events], 0.5)
    return (
        f"{outcome.seconds:4.0f} s: {len(outcome.samples)} sent, "
        f"{len(outcome.samples) - len(ended)} under way, {len(done)} ok, {failed} failed, "
        f"recent TTFT p50 {first_ms:.0f} ms"
    )


def told(record: Record) -> list[str]:
    """What a run was and gave, in sentences."""
    lines = [
        f"{record['setup']['model']} at {record['setup']['url']}: {record['loop']}.",
        f"{record['answered']} of {record['requests']} requests answered in "
        f"{record['seconds']:.1f} s: {record['answers_s']:.2f} a second, "
        f"{record['output_tokens_s']:.1f} output tokens/s.",
    ]
    if (late_ms := record["sent_late_p99_ms"]) is not None:
        lines.append(f"p99 of the time from the planned start to sending: {late_ms:.1f} ms.")
    if any(UNFINISHED in row["answers"] for row in record["kinds"].values()):
        lines.append("Unfinished requests are in no percentile; they would raise them.")
    return lines


def tables(record: Record) -> list[ReportTable]:
    """Times by kind, then how requests ended by kind."""
    head = ("times, ms", "count", "mean", *(f"p{share}" for share in SHARES))
    times = [
        (f"{kind} {name}", str(row["count"]), *(f"{row[key]:.1f}" for key in head[2:]))
        for kind, all_times in record["kinds"].items()
        for name, row in all_times["times_ms"].items()
    ]
    ends = [
        (
            f"{kind}: {code}",
            str(count),
            _counts(row) if code == OK else row["messages"].get(code, ""),
        )
        for kind, row in record["kinds"].items()
        for code, count in row["answers"].items()
    ]
    return [ReportTable(head, times), ReportTable(("answers", "requests", ""), ends)]


def _counts(row: Record) -> str:
    slowest = f"; slowest: {row['slowest']}" if row["slowest"] else ""
    cached = f"{row['cached_tokens']} of them cached"
    return f"{row['prompt_tokens']} tokens in, {cached}, {row['output_tokens']} out{slowest}"


def plot(record: Record) -> str:
    """The distribution of the first kind that was answered: TTFT by percentile, as bars."""
    rows = record["kinds"].items()
    found = [(kind, row["times_ms"]["ttft"]["curve"]) for kind, row in rows if row["times_ms"]]
    if not found:
        return "No answer had text."
    kind, curve = found[0]
    bars = (
        f"  p{share:<4}{curve[share]:>10.1f} ms  "
        + "█" * max(1, round(curve[share] / (curve[-1] or 1) * PLOT_COLUMNS))
        for share in PLOT_SHARES
    )
    return "\n".join((f"{kind} TTFT by percentile", *bars))


def ratio_table(found: Mapping[str, Sequence[float]], before: int, after: int) -> ReportTable:
    """What `figures.compare` found of so many runs."""
    head = f"median of {before} and {after} runs", "before", "after", "ratio", "least", "most", ""
    rows = []
    for name, (old, new, *ratios) in found.items():
        cells = (f"{value:.3f}" if isfinite(value) else "from 0" for value in ratios)
        spread = "within the spread" if ratios[1] <= 1 <= ratios[2] else ""
        rows.append((name, f"{old:.2f}", f"{new:.2f}", *cells, spread))
    return ReportTable(head, rows)


def page(
    title: str, lines: Iterable[str], shown: Iterable[ReportTable], records: Mapping[str, Record]
) -> str:
    """One file that loads nothing; its charts have a line for each of the named runs."""
    context = {
        "title": title, "lines": lines, "tables": shown, "charts": _charts(records),
        "width": CHART_WIDTH, "height": CHART_HEIGHT,
    }  # fmt: skip
    return Engine().from_string(PAGE.read_text()).render(Context(context, use_l10n=False))


def _charts(records: Mapping[str, Record]) -> list[dict[str, Any]]:
    """For each kind and time the percentiles of all runs that have it, as points of a line."""
    found: dict[str, dict[str, Sequence[float]]] = {}
    for label, record in records.items():
        for kind, row in record["kinds"].items():
            for name, times in row["times_ms"].items():
                found.setdefault(f"{kind} {name}", {})[label] = times["curve"]
    return [
        {"title": title, "most": most, "lines": {k: _points(v, most) for k, v in curves.items()}}
        for title, curves in found.items()
        for most in [max(map(max, curves.values())) or 1.0]
    ]


def _points(curve: Sequence[float], most: float) -> str:
    return " ".join(
        f"{share * CHART_WIDTH / PERCENT:.1f},{CHART_HEIGHT * (1 - value / most):.1f}"
        for share, value in enumerate(curve)
    )
