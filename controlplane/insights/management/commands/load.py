"""`manage.py sluice load`: bounded load on an OpenAI-compatible address, and what runs tell."""

import asyncio
import os
import re
import secrets
import signal
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.insights.client import KEY_VARIABLE, gateway_url
from controlplane.insights.load import figures, report, setup, workloads
from controlplane.insights.load.drive import LoadOutcome, LoadRun

LABEL = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
# Without a terminal a line is not written over, so there are fewer.
QUIET_S = 5.0
MIX_ALL = "all"
BOUNDS: dict[str, tuple[type, float, float, float, str]] = {
    "requests": (int, setup.REQUESTS_DEFAULT, 1, setup.REQUESTS_MAX, "requests of a run"),
    "seconds": (float, setup.SECONDS_DEFAULT, 1, setup.SECONDS_MAX, "time for starts of a run"),
    "streams": (int, setup.STREAMS_DEFAULT, 1, setup.CONCURRENCY_MAX, "closed loop: at once"),
    "rate": (float, 0, 0, setup.RATE_MAX, "open loop: starts a second; 0 is the closed loop"),
    "concurrency": (
        int,
        setup.CONCURRENCY_DEFAULT,
        1,
        setup.CONCURRENCY_MAX,
        "most requests on the wire",
    ),
    "output-tokens": (int, setup.OUTPUT_DEFAULT, 1, setup.OUTPUT_MAX, "longest answer"),
    "turns": (int, setup.TURNS_DEFAULT, 1, setup.TURNS_MAX, "requests of an agent"),
    "window": (int, setup.WINDOW_DEFAULT, 1, setup.WINDOW_MAX, "tokens that beyond-window exceeds"),
    "repeat": (int, 1, 1, setup.REPEAT_MAX, "runs, one after another"),
}


class Command(BaseCommand):
    """Asks with the key of the environment, if any; on a Sluice its requests are charged."""

    help = "Load a server within bounds, show its latencies, keep them, compare two sets of runs."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--url", help="OpenAI-compatible address (default: the local Sluice)")
        parser.add_argument("--model", help="model to ask for")
        parser.add_argument("--allow-remote", action="store_true", help="other machines, too")
        parser.add_argument(
            "--mix", nargs="?", const=MIX_ALL, metavar="KIND,KIND",
            help=f"the unhappy mix beside plain requests: {MIX_ALL} or some of "
            + ", ".join(workloads.UNHAPPY),
        )  # fmt: skip
        parser.add_argument(
            "--arrivals", choices=(setup.POISSON, setup.CONSTANT), default=setup.POISSON,
            help="when requests of an open loop are due",
        )  # fmt: skip
        for name, (kind, default, least, most, words) in BOUNDS.items():
            told = f"{words}, {least:g} to {most:g} ({default:g})"
            parser.add_argument(f"--{name}", type=kind, default=default, help=told)
        parser.add_argument("--label", type=_label, help="keep the runs under this name")
        _add_outputs(parser)
        comparing = parser.add_subparsers(dest="action").add_parser(
            "compare", help="ratios of the runs of two labels"
        )
        comparing.add_argument("before", type=_label)
        comparing.add_argument("after", type=_label)
        _add_outputs(comparing)

    def handle(self, *args: Any, **options: Any) -> None:
        folder = options["folder"] or Path(settings.DATA_DIR) / "load"
        if options["action"] == "compare":
            self._compare(folder, options["before"], options["after"], options["html"])
            return
        for name, (_, _, least, most, _) in BOUNDS.items():
            if not least <= options[name.replace("-", "_")] <= most:
                raise CommandError(f"--{name}: must be {least:g} to {most:g}.")
        chosen = _setup_of(options)
        for _ in range(options["repeat"]):
            record, stopped = asyncio.run(self._run(chosen))
            self._show(record)
            if options["label"]:
                self._say(f"Kept as {figures.keep(folder, options['label'], record)}")
            if stopped:
                self._say("Stopped before its end.")
                break
        lines, tables = report.told(record), report.tables(record)
        name = options["label"] or chosen.model
        self._write_html(
            options["html"],
            report.page(f"Load: {name}", lines, tables, report.charts({name: record})),
        )

    async def _run(self, chosen: setup.LoadSetup) -> tuple[figures.Record, bool]:
        """What it gave, and whether Ctrl-C ended it."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGINT, stop.set)
        load = LoadRun(chosen, os.environ.get(KEY_VARIABLE, "").strip(), secrets.token_hex(8))
        try:
            await load.run(stop, self._progress())
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        return figures.record_of(chosen, load.outcome), stop.is_set()

    def _progress(self) -> Callable[[LoadOutcome], None]:
        terminal = self.stderr.isatty()
        shown_s = 0.0

        def show(outcome: LoadOutcome) -> None:
            nonlocal shown_s
            if terminal:
                self.stderr.write("\r\033[K" + report.progress_line(outcome), ending="")
            elif outcome.seconds - shown_s >= QUIET_S:
                shown_s = outcome.seconds
                self.stderr.write(report.progress_line(outcome))
            self.stderr.flush()

        return show

    def _show(self, record: figures.Record) -> None:
        if self.stderr.isatty():
            self.stderr.write("")
        for line in report.told(record):
            self._say(line)
        for table in report.tables(record):
            self._say("\n" + table.text())
        self._say("\n" + report.plot(record))

    def _compare(self, folder: Path, before: str, after: str, path: Path | None) -> None:
        one, other = figures.kept(folder, before), figures.kept(folder, after)
        different = figures.differences(one, other)
        lines = [
            f"{before} to {after}: medians of {len(one)} and {len(other)} runs. Least and most are "
            "the ratios that any two runs would give."
        ]
        if different:
            lines.append(f"Not the same in all runs: {', '.join(different)}.")
        table = report.ratio_table(figures.compare(one, other), (len(one), len(other)))
        for line in lines:
            self._say(line)
        self._say("\n" + table.text())
        charts = report.charts({before: one[-1], after: other[-1]})
        self._write_html(path, report.page(f"Load: {before} to {after}", lines, [table], charts))

    def _write_html(self, path: Path | None, text: str) -> None:
        if path is None:
            return
        try:
            path.write_text(text)
        except OSError as error:
            raise CommandError(f"--html: {error}") from error
        self._say(f"Report: {path}")

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()


def _setup_of(options: dict[str, Any]) -> setup.LoadSetup:
    if not options["model"]:
        raise CommandError("--model: must name the model to ask for.")
    if not options["rate"] and options["streams"] > options["concurrency"]:
        raise CommandError("--streams: must be at most --concurrency.")
    kinds: tuple[str, ...] = (workloads.REFERENCE,)
    if options["mix"] is not None:
        chosen = workloads.UNHAPPY if options["mix"] == MIX_ALL else options["mix"].split(",")
        unknown = [name for name in chosen if name not in workloads.UNHAPPY]
        if unknown:
            raise CommandError(f"--mix: {', '.join(unknown)} is not a kind; see --help.")
        kinds = (workloads.PLAIN, *chosen)
    names = ("arrivals", *(name.replace("-", "_") for name in BOUNDS if name != "repeat"))
    return setup.LoadSetup(
        url=setup.target(gateway_url(options["url"]), allow_remote=options["allow_remote"]),
        model=options["model"],
        kinds=kinds,
        **{name: options[name] for name in names},
    )


def _add_outputs(parser: CommandParser) -> None:
    parser.add_argument("--folder", type=Path, help="where runs are kept (default: data/load)")
    parser.add_argument("--html", type=Path, help="write one self-contained HTML file, too")


def _label(text: str) -> str:
    if not LABEL.fullmatch(text):
        raise ArgumentTypeError("must be 1 to 40 of a-z, 0-9, - and _, a letter or digit first")
    return text
