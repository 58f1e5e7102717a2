"""One `manage.py sluice run`: servers, roles, migrations, demo, children, then waiting; and back.

Every step says what it does and how long the start has taken so far.
"""

import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import FrameType

from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connections

from controlplane.embedded import demo as demos
from controlplane.embedded import exposure, stack
from controlplane.embedded.kept import EmbeddedServer, KeptServer
from controlplane.embedded.layout import embedded_layout, prepare
from controlplane.embedded.ports import PORT_DEFAULT, choose_ports, serves
from controlplane.embedded.postgres import private_postgres
from controlplane.embedded.processes import Run, RunFile, ServerError, own_entry
from controlplane.embedded.redis_server import RedisServer
from controlplane.embedded.supervisor import Supervisor
from inference.contract.roofline import RUNS_ON

READY_SECONDS_MAX = 120.0
LOOK_SECONDS = 0.2
CONNECTOR_LOOK_SECONDS = 2.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Options:
    host: str
    port: int | None
    gateways: int
    with_node: bool
    with_embed: bool


class Launch:
    """Starts the whole product, keeps it running, and stops it again."""

    def __init__(self, options: Options, write: Callable[[str], None]) -> None:
        self._options = options
        self._write = write
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._noted = False
        self._connects = False
        self._connector_look_at = 0.0
        self._data = Path(settings.DATA_DIR)
        self._data.mkdir(parents=True, exist_ok=True)
        self._runfile = RunFile(self._data)
        self._servers: list[KeptServer] = []
        logs = self._data / "log"
        logs.mkdir(mode=0o700, exist_ok=True)
        self._supervisor = Supervisor(folder=settings.BASE_DIR, logs=logs, say=self._say)

    def run(self) -> None:
        """Return after a signal asked to stop; raises where the start fails."""
        if settings.SLUICE_ROLE != "all":
            raise ServerError("`sluice run` starts every role: SLUICE_ROLE must be all, or unset.")
        if not self._runfile.acquire():
            run = self._runfile.read()
            where = f" at {run.url} (process {run.supervisor.pid})" if run else ""
            raise ServerError(f"Sluice is already running in {self._data}{where}.")
        before = {kind: signal.signal(kind, self._ask_to_stop) for kind in STOP_SIGNALS}
        try:
            self._start()
            while not self._stop.wait(LOOK_SECONDS):
                self._look_after()
                self._look_for_connections()
        finally:
            self._end()
            for kind, handler in before.items():
                signal.signal(kind, handler)

    def _start(self) -> None:
        names = self._runfile.end_children()
        if names:
            self._say(f"ended {', '.join(names)}: left over from a killed run")
        ports = choose_ports(self._options.host, self._options.port, self._options.gateways)
        host = exposure.dialled(self._options.host)
        self._place = host, ports
        self._urls = [f"http://{host}:{port}" for port in ports]
        if ports[0] != PORT_DEFAULT and self._options.port is None:
            self._say(f"port {PORT_DEFAULT} is in use; using {ports[0]}")
        steps = (self._start_servers, self._prepare_database, self._bootstrap_demo)
        for step in steps:
            if self._stop.is_set():
                return
            step()
        self._start_children(host, ports)
        if self._await_ready(host, ports):
            if opened := exposure.told(self._options.host, ports):
                self._write(opened)
            self._write(demos.welcome(self._urls, self._demo, self._files))

    def _start_servers(self) -> None:
        if not (settings.EMBEDDED_DATABASE or settings.EMBEDDED_REDIS):
            self._say("using your PostgreSQL and Redis")
            return
        layout = embedded_layout(self._data)
        if layout.account is not None:
            self._say(f"running as root: the databases run as user {layout.account.name}")
        if layout.home != layout.data:
            self._say(f"that user cannot access {layout.data}: the databases are in {layout.home}")
        prepare(layout)
        if settings.EMBEDDED_DATABASE:
            self._keep(private_postgres(layout, self._say))
        if settings.EMBEDDED_REDIS:
            password, file = settings.REDIS_PASSWORD, Path(settings.SECRETS_DIR) / "redis"
            self._keep(RedisServer(layout, password=password, say=self._say, file=file))

    def _keep(self, server: EmbeddedServer) -> None:
        kept = KeptServer(server, self._say)
        self._servers.append(kept)
        kept.start()

    def _prepare_database(self) -> None:
        call_command("bootstrap_db", stdout=StringIO())
        call_command("migrate", verbosity=0, interactive=False)
        # Beat makes them too, but its first turn comes later than the first request.
        call_command("make_partitions", stdout=StringIO())
        self._say("database is up to date")
        call_command("prepare_static", stdout=StringIO())

    def _bootstrap_demo(self) -> None:
        answer = StringIO()
        call_command("bootstrap_demo", embed=self._options.with_embed, stdout=answer)
        connections.close_all()
        self._demo = demos.parse(answer.getvalue())
        self._files = demos.DemoFiles(self._data)
        self._files.keep(self._demo, self._urls[0])

    def _start_children(self, host: str, ports: list[int]) -> None:
        listen = self._options.host
        names = exposure.names_variable(listen, settings.ALLOWED_HOSTS)
        children = [
            *stack.gateways(listen, ports, names),
            stack.worker(self._urls[0]),
            stack.beat(),
        ]
        if self._options.with_node:
            model, credential = settings.SHIPPED_MODEL_DIR, self._files.credential()
            name = self._demo.node_name
            node = stack.node(host, ports, model=model, name=name, credential=credential)
            children.insert(1, node)
        if self._options.with_embed:
            credential, name = self._files.credential(demos.EMBED_CREDENTIAL), self._demo.embed_name
            children.append(stack.embed_node(host, ports, name=name, credential=credential))
        for child in children:
            self._supervisor.add(child)
        self._note()
        self._say(f"started {', '.join(child.name for child in children)}; waiting for them")

    def _await_ready(self, host: str, ports: list[int]) -> bool:
        models_min = self._options.with_node + self._options.with_embed
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not all(serves(host, port, models_min=models_min) for port in ports):
            if self._stop.wait(LOOK_SECONDS):
                return False
            self._look_after()
            if time.monotonic() > deadline:
                raise ServerError(
                    f"Not ready after {READY_SECONDS_MAX:.0f} s; see {self._data}/log."
                )
        self._say("ready")
        if self._options.with_node and (path := self._supervisor.said("node", RUNS_ON)):
            self._say(f"the node runs on {path}")
        return True

    def _look_after(self) -> None:
        self._noted = not self._supervisor.look() and self._noted
        if not self._noted:
            # A full disk must not end what runs: the list is written once there is room again.
            with suppress(OSError):
                self._note()
        for server in self._servers:
            server.look()

    def _look_for_connections(self) -> None:
        """Keep the connector running while hosted models are to be served, and only then."""
        now = time.monotonic()
        if now < self._connector_look_at:
            return
        self._connector_look_at = now + CONNECTOR_LOOK_SECONDS
        answer = StringIO()
        try:
            call_command("connector", wanted=True, stdout=answer)
        except DatabaseError:
            # It is away; what runs stays as it is.
            return
        finally:
            connections.close_all()
        wanted = answer.getvalue().strip() == "yes"
        if self._connects and not wanted:
            self._supervisor.retire(stack.CONNECTOR)
            self._connects = False
            self._say("no hosted model is to be served any more: the connector ends")
        elif wanted and not self._supervisor.keeps(stack.CONNECTOR):
            self._supervisor.add(stack.connector(*self._place))
            self._connects, self._noted = True, False
            self._say("started the connector, which serves hosted models")

    def _note(self) -> None:
        self._runfile.write(Run(self._urls[0], own_entry(), self._supervisor.entries))
        self._noted = True

    def _end(self) -> None:
        self._say("stopping")
        self._supervisor.stop()
        for server in reversed(self._servers):
            server.stop()
        self._runfile.clear()
        self._runfile.release()
        self._say("stopped; no process is left")

    def _ask_to_stop(self, kind: int, frame: FrameType | None) -> None:
        self._stop.set()

    def _say(self, message: str) -> None:
        with suppress(OSError):
            self._write(f"{time.monotonic() - self._started:6.1f} s  {message}")
