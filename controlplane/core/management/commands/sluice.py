"""`manage.py sluice run | status | stop | key-check` and more: the product on this machine."""

import signal
import sys
import time
from argparse import REMAINDER, ArgumentTypeError
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.core.keycheck import find_credentials, scan
from controlplane.embedded.launch import Launch, Options
from controlplane.embedded.layout import REDIS_PROGRAMS, LayoutError, embedded_layout
from controlplane.embedded.processes import Run, RunFile, ServerError, end_left_overs, living
from controlplane.kernel.keys.format import redacted
from inference.contract.version import VERSION

STOP_SECONDS_MAX = 90.0
POLL_SECONDS = 0.2
MIB = 2**20
# Commands by themselves, found by their names; of other apps this one knows nothing.
ELSEWHERE = {
    "doctor": "check this machine, and say what to do",
    "backup": "back up this installation while it serves",
    "restore": "restore a backup into an empty installation",
    "config": "configuration as code",
    "preflight": "check a request before it is sent",
    "load": "load a server within bounds, and compare runs",
    "compare": "compare four ways to call this deployment",
    "secrets": "replace a secret while Sluice serves",
    "probe": "exit with 0 if a worker or beat is alive",
}


class Command(BaseCommand):
    """Starts, shows and stops everything that one machine needs to serve."""

    help = "Run Sluice on this machine, show its status, or stop it."
    requires_system_checks: list[str] = []

    def get_version(self) -> str:
        return f"sluice {VERSION}"

    def add_arguments(self, parser: CommandParser) -> None:
        commands = parser.add_subparsers(dest="command", required=True, prog="sluice")
        run = commands.add_parser("run", help="start everything and keep it running")
        run.add_argument("--host", default="127.0.0.1", help="address to listen on")
        run.add_argument("--port", type=_port, help="port to listen on (8000, or the next free)")
        run.add_argument(
            "--gateways", type=_gateways, default=settings.GATEWAYS, metavar="N",
            help="gateway processes, on consecutive ports; the first also serves the pages",
        )  # fmt: skip
        run.add_argument("--no-node", action="store_true", help="do not start a generation node")
        run.add_argument("--embed", action="store_true", help="also start an embedding node")
        commands.add_parser("status", help="show what is running")
        commands.add_parser("stop", help="stop everything, also after a killed start")
        check = commands.add_parser("key-check", help="find Sluice credentials in files, offline")
        check.add_argument("paths", nargs="*", type=Path, help="files or folders; default: stdin")
        for name, told in ELSEWHERE.items():
            # No option is this parser's own: all that follows is passed on as it is.
            command = commands.add_parser(name, help=told, add_help=False, prefix_chars="\0")
            command.add_argument("arguments", nargs=REMAINDER)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["command"] in ELSEWHERE:
            call_command(options["command"], *options["arguments"], stdout=self.stdout)
            return
        if options["command"] == "key-check":
            self._key_check(options["paths"])
            return
        data = Path(settings.DATA_DIR)
        try:
            if options["command"] == "run":
                chosen = Options(
                    options["host"],
                    options["port"],
                    options["gateways"],
                    with_node=not options["no_node"],
                    with_embed=options["embed"],
                )
                Launch(chosen, self._write).run()
            elif options["command"] == "status":
                self._status(RunFile(data))
            else:
                self._stop(RunFile(data), data)
        except (ServerError, LayoutError) as error:
            raise CommandError(str(error)) from error

    def _key_check(self, paths: list[Path]) -> None:
        found = [each for path in paths for each in scan(path)]
        if not paths:
            found = list(find_credentials(sys.stdin.read()))
        for each in found:
            state = f"checksum {'valid' if each.genuine else 'invalid: not a Sluice credential'}"
            self._write(f"{each.place}:{each.line}: {redacted(each.credential)}: {state}")
        genuine = sum(each.genuine for each in found)
        if genuine:
            raise CommandError(f"{genuine} found: revoke them on the Keys page, then remove them.")
        self._write("No credential was found.")

    def _write(self, message: str) -> None:
        self.stdout.write(message)
        self.stdout.flush()

    def _status(self, runfile: RunFile) -> None:
        run = runfile.read()
        if run is None or not any(map(living, (run.supervisor, *run.children))):
            self._write("Sluice is not running here.")
            return
        self._write(f"Sluice is running at {run.url}")
        if living(run.supervisor) is None:
            self._write("Its supervisor was killed, so processes are not restarted. Run it again.")
        for known in (run.supervisor, *run.children):
            process = living(known)
            state = f"{process.memory_info().rss // MIB:>6} MiB" if process else "ended"
            self._write(f"  {known.name:<12} process {known.pid:<8} {state}")

    def _stop(self, runfile: RunFile, data: Path) -> None:
        run = runfile.read()
        if not runfile.acquire():
            self._stop_supervisor(runfile, run)
            self._write("Sluice is stopped.")
        left = runfile.end_children()
        layout = embedded_layout(data)
        servers = [(program, layout.redis) for program in REDIS_PROGRAMS]
        for program, folder in (*servers, ("postgres", layout.postgres)):
            if end_left_overs(program, folder, polite=signal.SIGINT, seconds=STOP_SECONDS_MAX):
                left.append(program)
        runfile.release()
        self._write(f"Ended {', '.join(left)}." if left else "Nothing is left running.")

    def _stop_supervisor(self, runfile: RunFile, run: Run | None) -> None:
        process = living(run.supervisor) if run else None
        if process is None:
            raise CommandError("Sluice is starting; try again in a moment.")
        process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while not runfile.acquire():
            if time.monotonic() > deadline:
                raise CommandError(f"Sluice (process {process.pid}) did not stop.")
            time.sleep(POLL_SECONDS)


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise ArgumentTypeError(f"the port must be 1 to 65535, not {text!r}")
    return int(text)


def _gateways(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= settings.GATEWAYS_MAX:
        raise ArgumentTypeError(
            f"the number of gateways must be 1 to {settings.GATEWAYS_MAX}, not {text!r}"
        )
    return int(text)
