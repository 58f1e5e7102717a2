"""`manage.py fleet …`: the life of nodes at the command line. Doors to services, no rules."""

import signal
import socket
import threading
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connections
from django.utils import timezone

from controlplane.core.arguments import arguments_named
from controlplane.core.audit.entries import OPERATOR
from controlplane.embedded.processes import Run, RunFile, own_entry
from controlplane.embedded.supervisor import Supervisor
from controlplane.fleet import services
from controlplane.fleet.driver import POLL_S, Driver, DriverHost
from controlplane.fleet.models import Node
from controlplane.fleet.overview import NodeView, signals
from controlplane.fleet.selectors import digest_list, fleet_get

ABOUT = {
    "approve": (services.node_approve, "approve a waiting node"),
    "drain": (services.node_drain, "drain: no new jobs, running ones finish"),
    "undrain": (services.node_undrain, "resume a drained node"),
    "remove": (services.node_remove, "revoke its credentials and close its connections"),
    "forgive": (services.node_forgive, "end its quarantine"),
}
DIGEST_CHARS_SHOWN = 12
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Command(BaseCommand):
    """One subcommand for each thing that staff decide about nodes."""

    help = "Show, approve, drain, remove and drive nodes."

    def add_arguments(self, parser: CommandParser) -> None:
        commands = parser.add_subparsers(dest="command", required=True)
        commands.add_parser("list", help="show pools and nodes")
        for name, (_, about) in ABOUT.items():
            one = commands.add_parser(name, help=about)
            one.add_argument("node", metavar="NODE")
            if name == "drain":
                one.add_argument(
                    "--deadline", type=int, default=services.DRAIN_S_DEFAULT, metavar="SECONDS"
                )
        allow = commands.add_parser("allow", help="set which models a node may serve")
        allow.add_argument("node", metavar="NODE")
        allow.add_argument("--model", action="append", metavar="M", help="repeat; default: any")
        token = commands.add_parser("token", help="print a one-time token to enrol one node")
        token.add_argument("--pool", default="default")
        token.add_argument("--model", action="append", metavar="M", help="repeat; default: any")
        token.add_argument("--approved", action="store_true", help="approve the node automatically")
        token.add_argument("--hours", type=int, default=services.LIFE_HOURS_DEFAULT)
        commands.add_parser("digests", help="show tokenizers offered by nodes")
        for word in ("approve", "refuse"):
            decide = commands.add_parser(f"digest-{word}", help=f"{word} an offered tokenizer")
            decide.add_argument("model", metavar="MODEL")
            decide.add_argument(
                "digest",
                metavar="DIGEST",
                help="first characters of the digest; '' for a text-only model",
            )
        drive = commands.add_parser("drive", help="start and stop nodes on this host, until Ctrl-C")
        drive.add_argument("--gateway", required=True, metavar="URL", help="what its nodes dial")
        drive.add_argument("--host-name", default=socket.gethostname().split(".")[0])

    def handle(self, *args: Any, **options: Any) -> None:
        command = options["command"]
        if command in ABOUT:
            more = {"deadline_s": options["deadline"]} if command == "drain" else {}
            with arguments_named(deadline_s="--deadline"):
                changed = ABOUT[command][0](actor=OPERATOR, node=_node(options["node"]), **more)
            self.stdout.write("Done." if changed else "Nothing to change.")
        elif command.startswith("digest-"):
            self._decide(options, approved=command == "digest-approve")
        else:
            getattr(self, f"_{command}")(options)

    def _allow(self, options: dict[str, Any]) -> None:
        with arguments_named(models="--model"):
            services.node_allow(
                actor=OPERATOR, node=_node(options["node"]), models=options["model"]
            )
        self.stdout.write("Done.")

    def _list(self, options: dict[str, Any]) -> None:
        for found in signals(actor=OPERATOR, now=timezone.now()):
            load = found.load
            self.stdout.write(
                f"{found.pool.name}: {load.nodes_ready} ready, {found.desired} desired of"
                f" {found.nodes_min} to {found.pool.nodes_max}, {load.waiting} waiting"
            )
            for view in found.view.nodes:
                self.stdout.write(f"  {_line(view)}")

    def _token(self, options: dict[str, Any]) -> None:
        draft = services.TokenDraft(
            pool=options["pool"],
            models=options["model"],
            approved=options["approved"],
            life_hours=options["hours"],
        )
        with arguments_named(pool="--pool", models="--model", life_hours="--hours"):
            made = services.token_create(actor=OPERATOR, draft=draft)
        self.stdout.write(made.secret)
        self.stderr.write("Not shown again; the node reads it from SLUICE_ENROL_TOKEN.")

    def _digests(self, options: dict[str, Any]) -> None:
        for row in digest_list(user=OPERATOR):
            shown = row.digest[:DIGEST_CHARS_SHOWN] or "(text only)"
            self.stdout.write(f"{row.model} {shown} {row.state}, offered by {row.offered_by}")

    def _decide(self, options: dict[str, Any], *, approved: bool) -> None:
        model, start = options["model"], options["digest"]
        found = [row for row in digest_list(user=OPERATOR) if row.model == model]
        exact = [row for row in found if row.digest == start]
        found = exact or [row for row in found if row.digest.startswith(start)]
        if len(found) != 1:
            raise CommandError(f"DIGEST: {len(found)} of {model!r} begin with {start!r}.")
        changed = services.digest_decide(actor=OPERATOR, digest=found[0], approved=approved)
        self.stdout.write("Done." if changed else "Nothing to change.")

    def _drive(self, options: dict[str, Any]) -> None:
        stop = threading.Event()
        before = {kind: signal.signal(kind, lambda *_: stop.set()) for kind in STOP_SIGNALS}
        folder = Path(settings.DATA_DIR) / "driver"
        folder.mkdir(parents=True, exist_ok=True)
        runfile = RunFile(folder)
        if not runfile.acquire():
            raise CommandError("Another driver runs with this data folder.")
        for name in runfile.end_children():
            self.stdout.write(f"ended {name}, left running by a killed driver")
        supervisor = Supervisor(folder=settings.BASE_DIR, logs=folder, say=self.stdout.write)
        driver = Driver(DriverHost(options["gateway"], options["host_name"]), supervisor)
        try:
            while not stop.wait(POLL_S):
                self._step(driver, supervisor, runfile, options["gateway"])
        finally:
            driver.stop()
            runfile.clear()
            runfile.release()
            for kind, handler in before.items():
                signal.signal(kind, handler)

    def _step(self, driver: Driver, supervisor: Supervisor, runfile: RunFile, gateway: str) -> None:
        try:
            changed = driver.step()
        except DatabaseError as error:
            # The nodes serve on; what is wished is asked for again.
            self.stderr.write(f"the database cannot be queried: {error}")
            connections.close_all()
            return
        if changed:
            runfile.write(Run(gateway, own_entry(), supervisor.entries))
            self.stdout.write(f"runs {', '.join(sorted(driver.names)) or 'nothing'}")


def _node(name: str) -> Node:
    try:
        return fleet_get(Node, user=OPERATOR, name=name)
    except ObjectDoesNotExist:
        raise CommandError(f"NODE: node {name!r} not found.") from None


def _line(view: NodeView) -> str:
    facts = view.node.facts
    engine = facts.get("engine", "?")
    told = f"{view.node.name} {view.state} {engine} on {view.node.region}"
    if slow := view.path.get("slow"):
        told += f", slow: {slow}"
    if view.shares_cache:
        told += ", tenants share its prefix cache"
    return f"{told}: {view.reason}" if view.reason else told
