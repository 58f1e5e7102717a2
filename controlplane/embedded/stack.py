"""What `manage.py sluice run` keeps running: gateways, one with pages, Celery's pair, nodes, and
what calls hosted providers."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from controlplane.embedded.supervisor import Child
from inference.contract.frames import FRAME_BYTES_MAX

GRACE_SECONDS = 10
# Draining, then the grace, then writing what was measured.
GATEWAY_STOP_SECONDS_MAX = 25.0
CHILD_STOP_SECONDS_MAX = 10.0
DRAIN_SECONDS = 5
WORKERS = "2"
EMBED_POOL = "embeddings"
CONNECTOR = "connector"
# Its own node drains and ends within less.
CONNECTOR_STOP_SECONDS_MAX = 15.0
# Fewer arenas, and no threads for products of matrices that nobody makes, keep processes small.
SMALL = {"MALLOC_ARENA_MAX": "2", "OPENBLAS_NUM_THREADS": "1"}
# Addresses that one can listen on and no one can dial.
WILDCARDS = ("0.0.0.0", "::")


def gateways(host: str, ports: Sequence[int]) -> list[Child]:
    """One process for each port: the first serves the pages, too."""
    rest = enumerate(ports[1:], start=2)
    more = [gateway(host, port, role="gateway", name=f"gateway-{n}") for n, port in rest]
    return [gateway(host, ports[0]), *more]


def gateway(host: str, port: int, *, role: str = "all", name: str = "gateway") -> Child:
    """Gateway and, in role `all`, pages in one process. Access logs are the recorder's work.

    Proxies are told by the socket's address (SLUICE_TRUSTED_PROXIES), so no header may replace it.
    """
    flags = {
        "--host": host,
        "--port": str(port),
        "--loop": "uvloop",
        "--http": "controlplane.bridge.http.connection:SocketProtocol",
        "--ws": "controlplane.bridge.fleet.frames:FrameProtocol",
        "--ws-max-size": str(FRAME_BYTES_MAX),
        "--ws-per-message-deflate": "false",
        "--lifespan": "on",
        "--timeout-graceful-shutdown": str(GRACE_SECONDS),
    }
    argv = _python("uvicorn", "controlplane.asgi:application", "--no-access-log")
    argv += ["--no-server-header", "--no-proxy-headers"]
    for flag, value in flags.items():
        argv += [flag, value]
    address = "" if host in WILDCARDS else fleet_url(host, port)
    env = {"SLUICE_ROLE": role, "SLUICE_ADVERTISE_URL": address, **SMALL}
    return Child(name, argv, env, 0, GATEWAY_STOP_SECONDS_MAX)


def worker(pages: str = "") -> Child:
    """`pages` is where people reach the pages, unless the environment says it."""
    argv = _python("celery", "-A", "controlplane.celery", "worker", "--concurrency", WORKERS)
    argv += ["--loglevel", "warning", "--without-gossip", "--without-mingle"]
    env = {"SLUICE_ROLE": "worker", **SMALL}
    if pages and not os.environ.get("SLUICE_PAGES_URL"):
        env["SLUICE_PAGES_URL"] = pages
    return Child("worker", argv, env, 1, CHILD_STOP_SECONDS_MAX)


def beat() -> Child:
    argv = _python("celery", "-A", "controlplane.celery", "beat", "--loglevel", "warning")
    env = {"SLUICE_ROLE": "beat", **SMALL}
    return Child("beat", [*argv, "--pidfile", ""], env, 1, CHILD_STOP_SECONDS_MAX)


def node(host: str, ports: Sequence[int], *, model: Path, name: str, credential: str) -> Child:
    """The compact engine with the shipped model; its credential never appears in arguments."""
    argv = [*_node_argv(host, ports, name), "--engine", "compact", "--model", str(model)]
    return Child("node", argv, {"SLUICE_NODE_CREDENTIAL": credential}, 1, CHILD_STOP_SECONDS_MAX)


def embed_node(host: str, ports: Sequence[int], *, name: str, credential: str) -> Child:
    """The embed engine with the packaged encoder, in the pool of embeddings, on one core."""
    argv = [*_node_argv(host, ports, name), "--engine", "embed", "--pool", EMBED_POOL]
    env = {"SLUICE_NODE_CREDENTIAL": credential}
    return Child("embed", [*argv, "--threads", "1"], env, 1, CHILD_STOP_SECONDS_MAX)


def connector(host: str, ports: Sequence[int]) -> Child:
    """What serves the models of hosted providers; it reads their keys from the database."""
    argv = [sys.executable, "manage.py", "connector"]
    for port in ports:
        argv += ["--gateway", fleet_url(host, port)]
    env = {"SLUICE_ROLE": CONNECTOR, **SMALL}
    return Child(CONNECTOR, argv, env, 1, CONNECTOR_STOP_SECONDS_MAX)


def fleet_url(host: str, port: int) -> str:
    return f"ws://{host}:{port}/fleet"


def _node_argv(host: str, ports: Sequence[int], name: str) -> list[str]:
    argv = _python("inference", "--name", name, "--drain-deadline", str(DRAIN_SECONDS))
    for port in ports:
        argv += ["--gateway", fleet_url(host, port)]
    return argv


def _python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]
