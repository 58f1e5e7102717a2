"""The programs that commands of the documentation name, by a process that has loaded the product.

`python -m tests.documented.programs SOCKET` forks for each command, so that none costs a start.
Ours run as they are, but for those that would not end or would end the installation: of these
the words alone are read. Those of others are the real ones, or check what they are asked for.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import click
import django
import httpx2
import psycopg
import uvicorn
import yaml
from django.conf import settings
from django.core.checks import run_checks
from django.core.management import get_commands, load_command_class
from redis import Redis

from controlplane.__main__ import PROGRAMS, resolved
from controlplane.__main__ import main as console
from controlplane.embedded.layout import embedded_layout, redis_program
from controlplane.embedded.postgres import SUPERUSER
from controlplane.managing import manage
from inference.__main__ import parser as node_parser
from inference.agent.__main__ import parser as agent_parser
from inference.contract.version import VERSION
from tests.documented.blocks import ROOT
from tests.release.chart import CHART, objects, rendered
from tests.support.waiting import wait_for

SIZE_BYTES = 4
# They would not end, or the installation would; each is run by tests of its own.
READ_ONLY = ("run", "stop", "restore", "rotate", "settle", "watch", "--base", "compare")
TOOLS = ROOT / "tests" / "clients" / "node" / "node_modules" / ".bin"
APP_PREFIX = "controlplane."


class Wrong(Exception):
    """What a command asks of a program that cannot be."""


def parser_of(words: Sequence[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser of a command of `manage.py`, and the words for it."""
    name, *rest = words
    commands = get_commands()
    if name not in commands:
        raise Wrong(f"no command {name}")
    if name == "sluice" and rest and rest[0] in commands:
        return parser_of(rest)
    return load_command_class(commands[name], name).create_parser("manage.py", name), rest


def read(words: Sequence[str]) -> None:
    """Reads the words of a command of `manage.py`; ends with its parser's status."""
    parser, rest = parser_of(words)
    parser.parse_args(rest)


def is_read_only(words: Sequence[str]) -> bool:
    return any(word in READ_ONLY for word in words)


def python(words: list[str]) -> None:
    if words[:2] == ["-m", "inference"]:
        node_parser().parse_args(words[2:])
    elif words[:2] == ["-m", "inference.agent"]:
        agent_parser().parse_args(words[2:])
    elif words[0] != "manage.py":
        raise Wrong(f"python {words[0]}")
    elif is_read_only(words):
        read(words[1:])
    else:
        manage(words)


def sluice(words: list[str]) -> None:
    if words[0] == "node":
        node_parser().parse_args(words[1:])
    elif words[0] == "agent":
        agent_parser().parse_args(words[1:])
    elif words[0] not in PROGRAMS and is_read_only(words):
        read(resolved(words) or [])
    else:
        sys.exit(console(words))


def make(words: list[str]) -> None:
    """Its targets are listed, and what they are given is read."""
    text = (ROOT / "Makefile").read_text()
    for word in words:
        name, _, given = word.partition("=")
        if not re.search(rf"\$\({name}\)" if given else rf"^{name}:.*##", text, re.MULTILINE):
            raise Wrong(f"make {word}")


def pipx(words: list[str]) -> None:
    """The wheel is of this release and has the extras."""
    name, _, extras = words[1].partition("[")
    if words[0] != "install" or name != f"sluice-{VERSION}-py3-none-any.whl":
        raise Wrong(name)
    _check_extras(extras)


def _check_extras(extras: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    known = project["tool"]["setuptools"]["dynamic"]["optional-dependencies"]
    if unknown := set(extras.rstrip("]").split(",")) - set(known):
        raise Wrong(f"no extras {unknown}")


def pip(words: list[str]) -> None:
    """Its list is there, with hashes where they are asked for; or the release has the extras."""
    if words[:1] == ["install"] and words[1].startswith("sluice["):
        return _check_extras(words[1].removeprefix("sluice["))
    text = Path(words[words.index("-r") + 1]).read_text()
    if words[0] != "install" or ("--require-hashes" in words and "--hash=" not in text):
        raise Wrong(" ".join(words))


def docker(words: list[str]) -> None:
    """`docker compose`: files, profiles and services are there; what `exec` names is run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("compose", choices=["compose"])
    parser.add_argument("-f", dest="file", type=Path, required=True)
    parser.add_argument("--profile")
    parser.add_argument("verb", choices=["up", "exec"])
    options, rest = parser.parse_known_args(words)
    services = yaml.safe_load(options.file.read_text())["services"]
    profiles = {name for each in services.values() for name in each.get("profiles", [])}
    if options.profile not in {None, *profiles}:
        raise Wrong(f"no profile {options.profile}")
    rest = words[words.index(options.verb) + 1 :]
    named = [word for word in rest if not word.startswith("-")]
    if options.verb == "exec":
        if named[0] not in services:
            raise Wrong(f"no service {named[0]}")
        run(rest[rest.index(named[0]) + 1 :])
    elif unknown := set(named) - set(services):
        raise Wrong(f"no services {unknown}")


@cache
def chart() -> list[dict[str, Any]]:
    """What the chart makes with its defaults."""
    return objects(rendered())


def kubectl(words: list[str]) -> None:
    """What is named as kind/name is in the rendered chart; what `exec` names is run."""
    made = chart()
    short = {"deploy": "Deployment", "job": "Job"}
    known = {(one["kind"], one["metadata"]["name"]) for one in made}
    before = words[: words.index("--")] if "--" in words else words
    for word in before:
        kind, _, name = word.partition("/")
        if kind in short and name and (short[kind], name) not in known:
            raise Wrong(word)
        option, _, given = word.partition("=")
        if option == "--from-file" and not Path(given).is_dir():
            raise Wrong(f"no folder {given}")
    if "-l" in before:
        label, _, wanted = before[before.index("-l") + 1].partition("=")
        if not any(one["metadata"].get("labels", {}).get(label) == wanted for one in made):
            raise Wrong(f"nothing is labelled {label}={wanted}")
    if "-f" in before:
        file = before[before.index("-f") + 1]
        list(yaml.safe_load_all(sys.stdin.read() if file == "-" else Path(file).read_text()))
    if "-o" in before and before[before.index("-o") + 1] == "yaml":
        sys.stdout.write("{}\n")
    if "exec" in before:
        run(words[words.index("--") + 1 :])


def helm(words: list[str]) -> None:
    """What `install` would send is rendered."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["install", "upgrade"])
    parser.add_argument("release")
    parser.add_argument("chart")
    parser.add_argument("-n", dest="namespace")
    parser.add_argument("--wait", action="store_true")
    parser.add_argument("--timeout")
    parser.add_argument("-f", dest="values", type=Path, required=True)
    options = parser.parse_args(words)
    if (ROOT / options.chart).resolve() != CHART:
        raise Wrong(f"no chart {options.chart}")
    rendered(values=options.values.resolve())


def npx(words: list[str]) -> None:
    """The program is one of those that tests have installed."""
    sys.exit(subprocess.run([TOOLS / words[0], *words[1:]], check=False).returncode)


def uvicorn_options(words: list[str]) -> None:
    """uvicorn: its options are read."""
    with uvicorn.main.make_context("uvicorn", list(words)):
        pass


def redis_cli(words: list[str]) -> None:
    """A Redis of one's own with a file of users, for as long as a command takes."""
    layout = embedded_layout(Path(settings.DATA_DIR))
    with tempfile.TemporaryDirectory() as folder:
        door, users = Path(folder, "socket"), Path(folder, "users")
        users.touch()
        options = ("--port", "0", "--unixsocket", door, "--aclfile", users, "--dir", folder)
        with subprocess.Popen(
            [redis_program(layout), *options], stdout=subprocess.DEVNULL
        ) as server:
            try:
                wait_for(door.exists, "Redis")
                client: Any = Redis(unix_socket_path=str(door))
                sys.stdout.write(f"{client.execute_command(*words)}\n")
            finally:
                server.terminate()


def claude(_: list[str]) -> None:
    """A request with the address, token and model that Claude Code would take."""
    token, base = os.environ["ANTHROPIC_AUTH_TOKEN"], os.environ["ANTHROPIC_BASE_URL"]
    said = [{"role": "user", "content": "Hi"}]
    httpx2.post(
        f"{base}/v1/messages",
        json={"model": os.environ["ANTHROPIC_MODEL"], "max_tokens": 4, "messages": said},
        headers={"authorization": f"Bearer {token}"},
    ).raise_for_status()


def psql(_: list[str]) -> None:
    """What it reads is done as superuser, and undone."""
    layout = embedded_layout(Path(settings.DATA_DIR))
    password = (layout.data / "secrets" / "postgres-superuser").read_text().strip()
    with psycopg.connect(
        host=str(layout.sockets), user=SUPERUSER, password=password, dbname="postgres"
    ) as connection:
        connection.execute(sys.stdin.buffer.read())
        connection.rollback()


KNOWN: dict[str, Callable[[list[str]], Any]] = {
    "python": python, "sluice": sluice, "make": make, "pipx": pipx, "pip": pip, "docker": docker,
    "kubectl": kubectl, "helm": helm, "npx": npx, "uvicorn": uvicorn_options,
    "redis-cli": redis_cli, "claude": claude, "psql": psql,
}  # fmt: skip


def run(words: list[str]) -> None:
    """Run a program with its words."""
    KNOWN[words[0]](words[1:])


def answer(asked: socket.socket) -> None:
    """In a process of its own: run what was asked for, and tell the status."""
    status = 1
    try:
        head, files, _, _ = socket.recv_fds(asked, SIZE_BYTES, 3)
        size, told = int.from_bytes(head, "big"), b""
        while len(told) < size:
            told += asked.recv(size - len(told))
        words, environment, folder = json.loads(told)
        for target, file in enumerate(files):
            os.dup2(file, target)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        run(words)
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            sys.stderr.write(f"{error.code}\n")
    except (Wrong, click.ClickException) as error:
        sys.stderr.write(f"{error}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        asked.send(b"%d" % status)
        os._exit(0)


def serve(path: str) -> None:
    """Answer until the process is ended."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    django.setup()
    for name, app in get_commands().items():
        if str(app).startswith(APP_PREFIX):
            load_command_class(app, name)
    chart()
    # Commands have it done before they begin; what it imports is shared.
    run_checks()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        while True:
            asked, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                answer(asked)
            asked.close()


if __name__ == "__main__":
    serve(sys.argv[1])
