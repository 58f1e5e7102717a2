"""`manage.py sluice load`: bounded load on an OpenAI-compatible address, and what runs tell."""

import asyncio
import os
import re
import secrets
import signal
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import uvloop
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.insights.client import KEY_VARIABLE, gateway_url
from controlplane.insights.load import figures, report, setup, workloads
from controlplane.insights.load.drive import LoadRun
from controlplane.insights.load.setup import BOUNDS, LoadError, LoadSetup, setup_of

LABEL = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
REPEAT_MAX = 20
# Without a terminal a line is not written over, so there are fewer.
PROGRESS_S, QUIET_S = 0.5, 5.0


class Command(BaseCommand):
    """Asks with the key of the environment, if any; on a Sluice its requests are charged."""

    help = "Load a server within bounds, show its latencies, keep them, compare two sets of runs."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--url", help="OpenAI-compatible address (default: the local Sluice)")
        parser.add_argument("--model", help="model to ask for")
        parser.add_argument("--allow-remote", action="store_true", help="other machines, too")
        parser.add_argument(
            "--mix", nargs="?", const=setup.MIX_ALL, metavar="KIND,KIND",
            help=f"the unhappy mix beside plain requests: {setup.MIX_ALL} or some of "
            + ", ".join(workloads.UNHAPPY),
        )  # fmt: skip
        parser.add_argument(
            "--arrivals", choices=setup.ARRIVALS, default=setup.ARRIVALS[0],
            help="when requests of an open loop are due",
        )  # fmt: skip
        parser.add_argument(
            "--extra-body", metavar="JSON", default="{}", help="more fields of each request"
        )
        for name, (default, bound) in BOUNDS.items():
            option, kind = f"--{name.replace('_', '-')}", type(default)
            told = f"{bound.title}, {bound.ge} to {bound.le} ({default:g})"
            parser.add_argument(option, type=kind, default=default, help=told)
        parser.add_argument(
            "--repeat", type=int, default=1, choices=range(1, REPEAT_MAX + 1), metavar="RUNS",
            help=f"runs, one after another, 1 to {REPEAT_MAX}",
        )  # fmt: skip
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
        try:
            if options["action"] == "compare":
                self._compare(folder, options)
            else:
                self._load(folder, options)
        except LoadError as error:
            raise CommandError(str(error)) from error

    def _load(self, folder: Path, options: dict[str, Any]) -> None:
        chosen = setup_of(options, url=gateway_url(options["url"]))
        for _ in range(options["repeat"]):
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                record, stopped = runner.run(self._run(chosen))
            lines, tables = report.told(record), report.tables(record)
            if self.stderr.isatty():
                self.stderr.write("")
            self._say(
                *lines, *("\n" + table.text() for table in tables), "\n" + report.plot(record)
            )
            if options["label"]:
                self._say(f"Kept as {figures.keep(folder, options['label'], record)}")
            if stopped:
                self._say("Stopped before its end.")
                break
        name = options["label"] or chosen.model
        self._write_html(options, report.page(f"Load: {name}", lines, tables, {name: record}))

    async def _run(self, chosen: LoadSetup) -> tuple[figures.Record, bool]:
        """What it gave, and whether Ctrl-C ended it."""
        load = LoadRun(chosen, os.environ.get(KEY_VARIABLE, "").strip(), secrets.token_hex(8))
        work = asyncio.create_task(load.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, work.cancel)
        terminal = self.stderr.isatty()
        while not work.done():
            if terminal:
                self.stderr.write("\r\033[K" + report.progress_line(load.outcome), ending="")
            elif load.outcome.seconds > QUIET_S:
                self.stderr.write(report.progress_line(load.outcome))
            self.stderr.flush()
            await asyncio.wait((work,), timeout=PROGRESS_S if terminal else QUIET_S)
        if not work.cancelled():
            work.result()
        return figures.record_of(chosen, load.outcome), work.cancelled()

    def _compare(self, folder: Path, options: dict[str, Any]) -> None:
        before, after = options["before"], options["after"]
        one, other = figures.kept(folder, before), figures.kept(folder, after)
        lines = [
            f"{before} to {after}: medians of {len(one)} and {len(other)} runs. Least and most are "
            "the ratios that any two runs would give."
        ]
        if different := figures.differences(one, other):
            lines.append(f"Not the same in all runs: {', '.join(different)}.")
        table = report.ratio_table(figures.compare(one, other), len(one), len(other))
        self._say(*lines, "\n" + table.text())
        records = {before: one[-1], after: other[-1]}
        title = f"Load: {before} to {after}"
        self._write_html(options, report.page(title, lines, [table], records))

    def _write_html(self, options: dict[str, Any], text: str) -> None:
        if options["html"] is None:
            return
        try:
            options["html"].write_text(text)
        except OSError as error:
            raise CommandError(f"--html: {error}") from error
        self._say(f"Report: {options['html']}")

    def _say(self, *lines: str) -> None:
        self.stdout.write("\n".join(lines))
        self.stdout.flush()


def _add_outputs(parser: CommandParser) -> None:
    parser.add_argument("--folder", type=Path, help="where runs are kept (default: data/load)")
    parser.add_argument("--html", type=Path, help="write one self-contained HTML file, too")


def _label(text: str) -> str:
    if not LABEL.fullmatch(text):
        raise ArgumentTypeError("must be 1 to 40 of a-z, 0-9, - and _, a letter or digit first")
    return text
