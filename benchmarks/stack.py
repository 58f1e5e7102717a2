"""The real product for a benchmark, in a folder of its own: PostgreSQL, Redis, gateway, node."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import django
from django.conf import settings
from django.core.management import call_command
from django.utils.module_loading import import_string

from benchmarks.machine import pin
from controlplane.embedded.layout import embedded_layout, prepare
from controlplane.embedded.postgres import Postgres
from controlplane.embedded.redis_server import RedisServer
from controlplane.embedded.stack import EMBED_POOL

START_S_MAX = 60.0
STOP_S_MAX = 15.0
POLL_S = 0.05
GATEWAY_CORE = 0
OTHER_CORE = 1
# What a request needs beside the check of its key.
AUTH_ONLY = "auth_only"
WITH_LIMITS = "with_limits"
WITH_HOLD = "with_hold"


@dataclass(frozen=True)
class Stack:
    """Servers that run, and the demo's credentials.

    `feature_keys` are secrets of keys by what their requests need.
    """

    key: str
    feature_keys: Mapping[str, str]
    node_credential: str
    node_name: str
    embed_credential: str
    embed_name: str
    model: Path


@contextlib.contextmanager
def stack() -> Iterator[Stack]:
    """Fresh data, real servers with fsync on, everything removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        Path(folder).chmod(0o755)
        os.environ["SLUICE_DATA"] = folder
        os.environ["SLUICE_LOG_LEVEL"] = "WARNING"
        os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
        django.setup()
        # Of the processes that are started here, not of this one.
        os.environ["SLUICE_ROLE"] = "gateway"
        layout = embedded_layout(settings.DATA_DIR)
        prepare(layout)
        postgres = Postgres(layout, password=settings.SUPERUSER_PASSWORD, say=note)
        redis = RedisServer(layout, password=settings.REDIS_PASSWORD, say=note)
        postgres.start()
        try:
            redis.start()
            yield _bootstrap()
        finally:
            redis.stop()
            postgres.stop()


def _bootstrap() -> Stack:
    call_command("bootstrap_db", verbosity=0)
    call_command("migrate", verbosity=0)
    out = io.StringIO()
    call_command("bootstrap_demo", "--embed", stdout=out)
    # Imported late, since they need the applications that `stack` sets up.
    import_string("benchmarks.limits.raise_limits")()
    feature_keys = import_string("benchmarks.limits.feature_keys")()
    made = json.loads(out.getvalue().strip().splitlines()[-1])
    return Stack(
        key=made["api_key"],
        feature_keys=feature_keys,
        node_credential=made["node_credential"],
        node_name=made["node_name"],
        embed_credential=made["embed_credential"],
        embed_name=made["embed_name"],
        model=settings.SHIPPED_MODEL_DIR,
    )


@contextlib.contextmanager
def serve(
    app: str,
    *,
    samples: Path | None = None,
    pinned: bool = True,
    python: str = sys.executable,
) -> Iterator[tuple[int, int]]:
    """An ASGI application, on the gateway's own core if pinned; yields port and pid."""
    port = free_port()
    argv = [python, "-m", "benchmarks.serve", app, str(port)]
    with process([*argv, str(samples)] if samples else argv) as pid:
        wait_for(lambda: listening(port), f"{app} to listen")
        pin(pid, *([GATEWAY_CORE] if pinned else []))
        yield port, pid


@contextlib.contextmanager
def node(stack: Stack, port: int, *arguments: str) -> Iterator[int]:
    """A node that serves the shipped model (or echoes it); yields its pid once it is ready."""
    arguments = ("--name", stack.node_name, "--model", str(stack.model), *arguments)
    with _inference(port, stack.node_credential, *arguments) as pid:
        yield pid


@contextlib.contextmanager
def embed_node(stack: Stack, port: int) -> Iterator[int]:
    """A node that embeds with the packaged encoder, in one thread; yields its pid once ready."""
    arguments = ("--name", stack.embed_name, "--engine", "embed", "--pool", EMBED_POOL)
    with _inference(port, stack.embed_credential, *arguments, "--threads", "1") as pid:
        yield pid


@contextlib.contextmanager
def _inference(port: int, credential: str, *arguments: str) -> Iterator[int]:
    argv = [sys.executable, "-m", "inference", "--gateway", fleet_url(port), *arguments]
    argv += ["--log-level", "WARNING"]
    with process(argv, SLUICE_NODE_CREDENTIAL=credential) as pid:
        wait_for(lambda: serving(port), "a node to serve")
        yield pid


@contextlib.contextmanager
def process(argv: list[str], **environment: str) -> Iterator[int]:
    """A child that is stopped, and killed when it does not stop."""
    child = subprocess.Popen(argv, env={**os.environ, **environment})
    try:
        yield child.pid
    finally:
        child.terminate()
        try:
            child.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def fleet_url(port: int) -> str:
    """Where nodes dial a gateway."""
    return f"ws://127.0.0.1:{port}/fleet"


def free_port() -> int:
    """A loopback port that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def listening(port: int) -> bool:
    """Whether somebody accepts connections."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def serving(port: int) -> bool:
    """Whether the gateway has a model to serve."""
    with (
        contextlib.suppress(urllib.error.URLError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer,
    ):
        return bool(json.load(answer)["models"])
    return False


def wait_for(true: Callable[[], bool], what: str) -> None:
    """Poll within `START_S_MAX`."""
    until = time.monotonic() + START_S_MAX
    while not true():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {START_S_MAX:.0f} s for {what}")
        time.sleep(POLL_S)


def note(message: str) -> None:
    """What the servers say, for whoever reads the benchmark's output."""
    print(message, file=sys.stderr)
