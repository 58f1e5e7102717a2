"""`python -m inference`: start one node, or check a model. Chooses the engine from a table.

Engines are imported only when chosen, because some need torch, and only after the environment
that torch reads at its import is set.
"""

import argparse
import asyncio
import gc
import os
import pkgutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import uvloop

from inference import logs
from inference.contract.version import VERSION
from inference.engines.base import Engine
from inference.engines.table import ENGINE_OPTIONS, ENGINES, EngineEntry
from inference.errors import ModelError
from inference.node.assets import Assets, ModelAssets
from inference.node.drain import drain
from inference.node.enrol import Enrolment, control_plane_url, credential
from inference.node.options import (
    DRAIN_DEADLINE_S,
    PROBE_INTERVAL_S,
    BadOption,
    NodeOptions,
    gateway_url,
)
from inference.node.probe import check
from inference.node.service import Node
from inference.tls import client_context

EXIT_MODEL = 1
EXIT_USAGE = 2
# Signals so close have one cause: the end of a parent with several threads sends one for each.
SIGNALS_TOGETHER_S = 1.0

MODEL_HELP = """\
checkpoint folder: config.json, tokenizer.json, tokenizer_config.json, weights, and
chat_template.jinja where it has one. The embed engine has a packaged folder; of the remote engine's
model gateways read the tokenizer, where a folder is given"""

DESCRIPTION = """\
Start one inference node. It loads a model, proves it with one token, dials out to every
gateway and serves them until it is stopped. It listens on nothing.

The node's credential is read from the environment variable SLUICE_NODE_CREDENTIAL
(node_sluice_...), or got once for the one-time token in SLUICE_ENROL_TOKEN (enrol_sluice_...) and
kept in --credential-file. The key of a remote server is read from SLUICE_UPSTREAM_KEY. They are
never arguments, since arguments can be seen by every user."""

EPILOG = """\
examples:
  python -m inference --check --model inference/assets/sluice-5m
  SLUICE_ENROL_TOKEN=enrol_sluice_... python -m inference --gateway wss://sluice.example.org \\
      --name gpu-1 --pool large --credential-file ~/.sluice-gpu-1 --model /models/big
  SLUICE_NODE_CREDENTIAL=node_sluice_... python -m inference --gateway ws://127.0.0.1:8000 \\
      --name node-2 --engine remote --url http://127.0.0.1:8001/v1 --model-name big

SIGTERM or Ctrl-C drains: no new jobs, those running are finished until the deadline, the rest
goes back to the gateway. Another one, a second later or more, stops at once.
exit status: 0 drained (or the check passed), 1 the model cannot be served, 2 a wrong option,
3 the engine died or no longer makes a token, 4 another process has taken this node's name,
5 a link failed. After 3 and 5 start it again; after the others something must be mended first."""


# Flag, destination, kind, metavar and help; those of `NODE_FIELDS` are fields of `NodeOptions`.
NODE_FLAGS: tuple[tuple[str, str, Callable[[str], Any], str, str], ...] = (
    ("--name", "name", str, "NAME", "the node's name, as its credential was issued for"),
    ("--pool", "pool", str, "NAME", "the pool it serves in (default: default)"),
    ("--region", "region", str, "NAME", "where it stands (default: local)"),
    ("--credential-file", "credential_file", Path, "PATH",
        "where an enrolled node keeps its credential (mode 600), and finds it at later starts"),
    ("--enrol-url", "enrol_url", str, "URL",
        "http(s) address of the control plane, where that is not the first gateway's own"),
    ("--credits", "credits", int, "N",
        "jobs at once, shared evenly among the gateways (default: the engine's own figure)"),
    ("--drain-deadline", "drain_deadline_s", float, "SECONDS",
        f"how long running jobs may take after SIGTERM (default: {DRAIN_DEADLINE_S:.0f})"),
    ("--probe-interval", "probe_interval_s", float, "SECONDS",
        "an engine idle for so long must make one token; three failures end the node; 0: only at"
        f" the start (default: {PROBE_INTERVAL_S:.0f})"),
)  # fmt: skip
NODE_FIELDS = ("name", "pool", "region", "credits", "drain_deadline_s", "probe_interval_s")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m inference",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    engines = "; ".join(f"{name}: {entry.about}" for name, entry in ENGINES.items())
    add("--engine", choices=tuple(ENGINES), default="compact", help=f"{engines} (default: compact)")
    add("--version", action="version", version=f"sluice {VERSION}")
    add("--model", type=Path, metavar="PATH", help=MODEL_HELP)
    add("--check", action="store_true",
        help="load a model, try its template, measure it, print the figures, end")  # fmt: skip
    add("--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"), default="INFO",
        help="logs go to standard error (default: INFO)")  # fmt: skip
    add("--log-format", choices=logs.FORMATS, default="plain",
        help="json: one object a line (default: plain)")  # fmt: skip
    node = made.add_argument_group("node options")
    node.add_argument("--gateway", action="append", metavar="URL",
        help="ws:// or wss:// address of a gateway; repeat it for several")  # fmt: skip
    for flag, dest, kind, metavar, said in NODE_FLAGS:
        node.add_argument(flag, dest=dest, type=kind, metavar=metavar, help=said)
    made.set_defaults(**{each: getattr(NodeOptions, each) for each in NODE_FIELDS[1:]})
    shared = made.add_argument_group("options of several engines")
    groups = {name: made.add_argument_group(f"the {name} engine") for name in ENGINES}
    for option in ENGINE_OPTIONS:
        alone = len(option.engines) == 1
        group = groups[option.engines[0]] if alone else shared
        several = not alone and len(option.engines) < len(ENGINES)
        said = f" ({', '.join(option.engines)})" if several else ""
        group.add_argument(
            option.flag, dest=f"engine_{option.field}", type=option.kind, metavar=option.metavar,
            help=f"{option.help}{said}".replace("%", "%%"),
            nargs=argparse.REMAINDER if option.rest else None,
        )  # fmt: skip
    return made


def build_engine(args: argparse.Namespace) -> tuple[Engine, Assets]:
    """Import the chosen engine and construct it; raises `BadOption` or `ModelError`."""
    entry = ENGINES[args.engine]
    if args.model is None and entry.model == "folder":
        raise BadOption(f"--model: the {args.engine} engine needs a checkpoint folder")
    try:
        options_class, engine = map(pkgutil.resolve_name, (entry.options, entry.engine))
    except ImportError as error:
        raise BadOption(f"--engine: {args.engine} cannot be loaded: {error}") from error
    options = _engine_options(args, entry, options_class)
    if entry.model == "optional":
        return engine(options, args.model), ModelAssets(args.model) if args.model else Assets()
    path = args.model or engine.packaged_model()
    return engine(path, options), ModelAssets(path)


def _engine_options(args: argparse.Namespace, entry: EngineEntry, options_class: type[Any]) -> Any:
    known = {each.name for each in fields(options_class)}
    chosen: dict[str, Any] = {}
    for option in ENGINE_OPTIONS:
        value = getattr(args, f"engine_{option.field}")
        if value is None:
            continue
        if args.engine not in option.engines or option.field not in known:
            raise BadOption(f"{option.flag}: the {args.engine} engine has no such option")
        chosen[option.field] = value
    if args.credits is not None:
        chosen[entry.credits_option] = args.credits
    suited = pkgutil.resolve_name(entry.defaults)(chosen) if entry.defaults else {}
    try:
        return options_class(**{**suited, **chosen})
    except ValueError as error:
        raise BadOption(str(error)) from error


def node_options(args: argparse.Namespace) -> NodeOptions:
    """The node's own options; raises `BadOption`."""
    if not args.gateway or not args.name:
        raise BadOption("--gateway and --name: a node needs both; --check needs neither")
    gateways = tuple(dict.fromkeys(gateway_url(url) for url in args.gateway))
    enrolment = Enrolment(
        url=args.enrol_url or control_plane_url(gateways[0]), name=args.name, pool=args.pool
    )
    try:
        client_context()
    except ValueError as error:
        raise BadOption(str(error)) from error
    own = credential(os.environ, args.credential_file, enrolment)
    fields_given = {each: getattr(args, each) for each in NODE_FIELDS}
    return NodeOptions(gateways=gateways, credential=own, **fields_given)


async def serve(args: argparse.Namespace, options: NodeOptions) -> int:
    """Run the node until a signal or its own end; returns the exit status."""
    engine, assets = build_engine(args)
    gc.freeze()
    gc.enable()
    node = Node(engine, assets, options)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    signalled = asyncio.create_task(stop.wait())
    running = asyncio.create_task(node.run())
    try:
        await asyncio.wait([signalled, running], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.call_later(SIGNALS_TOGETHER_S, loop.remove_signal_handler, number)
        await drain(node, options.drain_deadline_s)
        return 0
    finally:
        for task in (signalled, running):
            task.cancel()
        await asyncio.gather(signalled, running, return_exceptions=True)
        await node.close()


async def run(args: argparse.Namespace) -> int:
    """Check the model or serve it; raises `BadOption` or `ModelError`."""
    if not args.check:
        return await serve(args, node_options(args))
    engine, assets = build_engine(args)
    for line in await check(engine, assets):
        sys.stdout.write(f"{line}\n")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    # Idle OpenMP threads must sleep, or they take the cores that gateway and loop need. libgomp
    # reads this once, when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    args = parser().parse_args(argv)
    logs.set_up(args.log_level, args.log_format)
    try:
        return uvloop.run(run(args))
    except BadOption as error:
        sys.stderr.write(f"python -m inference: {error}\n")
        return EXIT_USAGE
    except ModelError as error:
        sys.stderr.write(f"python -m inference: the model cannot be served: {error}\n")
        return EXIT_MODEL
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    # What is imported stays; looking through it took, with torch, 0.2 s of a start and 0.4 s of an
    # end.
    gc.disable()
    status = main()
    gc.freeze()
    sys.exit(status)
