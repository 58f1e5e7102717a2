"""Runs and comparisons for people: tables and a plot as text, and one HTML file of its own."""

import html
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from controlplane.insights.load import figures
from controlplane.insights.load.answers import LEFT, OK, UNFINISHED
from controlplane.insights.load.drive import LoadOutcome
from controlplane.insights.load.figures import MS_PER_S, SHARES, LoadRatio, Record

PLOT_SHARES = (1, 10, 25, 50, 75, 90, 95, 99, 100)
PLOT_COLUMNS = 50
CHART_WIDTH, CHART_HEIGHT, CHART_EDGE = 560, 220, 40
COLOURS = ("#2563eb", "#c2410c")
RECENT = 100
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;"
    "color:#111;background:#fff}table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem "
    ".7rem;text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:"
    "left}svg{max-width:100%;height:auto}"
)


class ReportTable(NamedTuple):
    """Headings, and rows of as many cells: a name, numbers, and remarks under no heading."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def text(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if number and head else cell.ljust(width)
                for number, (head, cell, width) in enumerate(
                    zip(self.head, row, widths, strict=True)
                )
            ).rstrip()
            for row in (self.head, *self.rows)
        )

    def html(self) -> str:
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.head)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def progress_line(outcome: LoadOutcome) -> str:
    """Where a run is."""
    ended = [each for each in outcome.samples if each.code != UNFINISHED]
    done = [each for each in ended if each.code == OK]
    failed = sum(each.code not in (OK, LEFT) for each in ended)
    firsts = sorted(each.first_s - each.planned_s for each in done[-RECENT:] if each.events)
    first = f"{figures.percentile(firsts, 50) * MS_PER_S:.0f} ms" if firsts else "–"
    under_way = len(outcome.samples) - len(ended)
    return (
        f"{outcome.seconds:4.0f} s: {len(outcome.samples)} sent, {under_way} under way, "
        f"{len(done)} ok, {failed} failed, recent TTFT p50 {first}"
    )


def told(record: Record) -> list[str]:
    """What a run was and gave, in sentences."""
    late = record["sent_late_p99_ms"]
    lines = [
        f"{record['setup']['model']} at {record['setup']['url']}: {record['loop']}.",
        f"{record['answered']} of {record['requests']} requests answered in "
        f"{record['seconds']:.1f} s: {record['answers_s']:.2f} a second, "
        f"{record['output_tokens_s']:.1f} output tokens/s.",
    ]
    if late is not None:
        lines.append(f"p99 of the time from the planned start to sending: {late:.1f} ms.")
    if any(UNFINISHED in row["answers"] for row in record["kinds"].values()):
        lines.append("Unfinished requests are in no percentile; they would raise them.")
    return lines


def tables(record: Record) -> list[ReportTable]:
    """Times by kind, then how requests ended by kind."""
    head = ("times, ms", "count", "mean", *(f"p{share}" for share in SHARES))
    times = [
        (
            f"{kind} {name}",
            str(row["count"]),
            *(f"{row[key]:.1f}" for key in ("mean", *head[3:])),
        )
        for kind, all_times in record["kinds"].items()
        for name, row in all_times["times_ms"].items()
    ]
    ends = [
        (f"{kind}: {code}", str(count), each)
        for kind, row in record["kinds"].items()
        for code, count, each in _ends(row)
    ]
    return [ReportTable(head, times), ReportTable(("answers", "requests", ""), ends)]


def _ends(row: Record) -> Iterable[tuple[str, int, str]]:
    for code, count in row["answers"].items():
        tokens = (
            f"{row['prompt_tokens']} tokens in, {row['cached_tokens']} of them cached, "
            f"{row['output_tokens']} out"
        )
        yield code, count, tokens if code == OK else row["messages"].get(code, "")


def plot(record: Record) -> str:
    """The distribution of the first kind that was answered: TTFT by percentile, as bars."""
    for kind, row in record["kinds"].items():
        if "ttft" in row["times_ms"]:
            curve = row["times_ms"]["ttft"]["curve"]
            most = curve[-1] or 1.0
            bars = (
                f"  p{share:<4}{curve[share]:>10.1f} ms  "
                + "█" * max(1, round(curve[share] / most * PLOT_COLUMNS))
                for share in PLOT_SHARES
            )
            return "\n".join((f"{kind} TTFT by percentile", *bars))
    return "No answer had text."


def ratio_table(ratios: Sequence[LoadRatio], runs: tuple[int, int]) -> ReportTable:
    """Medians of both, their ratio, and its spread."""
    head = (f"median of {runs[0]} and {runs[1]} runs", "before", "after", "ratio", "least", "most")
    rows = [
        (
            each.name,
            f"{each.before:.2f}",
            f"{each.after:.2f}",
            *(_times(value) for value in (each.ratio, each.least, each.most)),
            "" if each.differs else "within the spread",
        )
        for each in ratios
    ]
    return ReportTable((*head, ""), rows)


def _times(value: float) -> str:
    return f"{value:.3f}" if isfinite(value) else "from 0"


def page(
    title: str, lines: Iterable[str], shown: Iterable[ReportTable], charts: Iterable[str]
) -> str:
    """One file that loads nothing."""
    paragraphs = "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    inside = paragraphs + "".join(table.html() for table in shown) + "".join(charts)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}'
        f"</title><style>{STYLE}</style></head><body><h1>{html.escape(title)}</h1>{inside}"
        "</body></html>\n"
    )


def charts(records: Mapping[str, Record]) -> list[str]:
    """For each kind and time a chart of its percentiles, with a line for each of the named runs."""
    first: dict[str, Any] = next(iter(records.values()))["kinds"]
    return [
        _chart(f"{kind} {name}, ms by percentile", lines)
        for kind, row in first.items()
        for name in row["times_ms"]
        if (lines := _lines(records, kind, name))
    ]


def _lines(records: Mapping[str, Record], kind: str, name: str) -> dict[str, list[float]]:
    return {
        label: record["kinds"][kind]["times_ms"][name]["curve"]
        for label, record in records.items()
        if name in record["kinds"].get(kind, {"times_ms": {}})["times_ms"]
    }


def _chart(title: str, lines: Mapping[str, Sequence[float]]) -> str:
    most = max(max(curve) for curve in lines.values()) or 1.0
    wide, high = CHART_WIDTH - CHART_EDGE, CHART_HEIGHT - CHART_EDGE
    drawn = ""
    for number, (label, curve) in enumerate(lines.items()):
        points = " ".join(
            f"{CHART_EDGE + share * wide / figures.PERCENT:.1f},{high - value / most * high:.1f}"
            for share, value in enumerate(curve)
        )
        colour = COLOURS[number % len(COLOURS)]
        place = f'x="{CHART_EDGE + 8}" y="{16 * (number + 1)}" fill="{colour}"'
        drawn += f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        drawn += f"<text {place}>{html.escape(label)}</text>"
    axes = (
        f'<path d="M{CHART_EDGE} 0V{high}H{CHART_WIDTH}" fill="none" stroke="#777"/>'
        f'<text x="0" y="12">{most:.0f}</text><text x="{CHART_EDGE}" y="{high + 18}">p0</text>'
        f'<text x="{CHART_WIDTH - 36}" y="{high + 18}">p100</text>'
    )
    name = html.escape(title)
    return (
        f'<h2>{name}</h2><svg role="img" aria-label="{name}" font-size="12" '
        f'viewBox="0 0 {CHART_WIDTH} {CHART_HEIGHT}">{axes}{drawn}</svg>'
    )
