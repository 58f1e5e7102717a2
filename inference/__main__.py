"""`python -m inference`: start one node. Chooses the engine by name from a table.

Engines are imported only when chosen, because some need torch, and only after the environment
that torch reads at its import is set.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from inference.engines.base import Engine, ModelError
from inference.node.assets import ModelAssets
from inference.node.drain import drain
from inference.node.options import (
    CREDENTIAL_VARIABLE,
    DRAIN_DEADLINE_S,
    BadOption,
    NodeOptions,
    gateway_url,
)
from inference.node.service import Node

log = logging.getLogger("inference")

EXIT_MODEL = 1
EXIT_USAGE = 2
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
MEBIBYTE = 1024 * 1024

MODEL_HELP = "checkpoint folder: config.json, tokenizer.json, tokenizer_config.json, weights"

DESCRIPTION = """\
Start one inference node. It loads a model, proves it with one token, dials out to every
gateway and serves them until it is told to stop. It listens on nothing.

The node's credential is read from the environment variable SLUICE_NODE_CREDENTIAL
(node_sluice_...); it is never an argument, since arguments can be seen by every user."""

EPILOG = """\
example:
  export SLUICE_NODE_CREDENTIAL=node_sluice_...
  python -m inference --gateway ws://127.0.0.1:8000 --name node-1 --model inference/assets/model

SIGTERM or Ctrl-C drains: no new jobs, those running are finished. A second one stops at once.
exit status: 0 drained, 1 the model cannot be served, 2 a wrong option, 3 the engine died,
4 another process has taken this node's name, 5 a link failed."""


@dataclass(frozen=True)
class EngineEntry:
    """Where an engine and its options live, and which option bounds the jobs at once."""

    module: str
    engine: str
    options_module: str
    options: str
    credits_option: str


ENGINES = {
    "compact": EngineEntry(
        module="inference.engines.compact",
        engine="CompactEngine",
        options_module="inference.compact.options",
        options="CompactOptions",
        credits_option="running_max",
    ),
    "echo": EngineEntry(
        module="inference.engines.echo",
        engine="EchoEngine",
        options_module="inference.engines.echo",
        options="EchoOptions",
        credits_option="credits",
    ),
}


def mebibytes(text: str) -> int:
    """Parse a size given in MiB; the name is what argparse shows for a wrong one."""
    return int(text) * MEBIBYTE


@dataclass(frozen=True)
class EngineOption:
    """A flag that sets one field of an engine's options."""

    flag: str
    field: str
    kind: Callable[[str], Any]
    metavar: str
    help: str


ENGINE_OPTIONS = (
    EngineOption(
        "--model-name", "name", str, "NAME", "what the model is offered as (default: its folder)"
    ),
    EngineOption("--device", "device", str, "NAME", "auto, cpu or cuda (compact)"),
    EngineOption("--dtype", "dtype", str, "NAME", "auto, bfloat16 or float32 (compact)"),
    EngineOption("--threads", "threads", int, "N", "CPU threads (compact)"),
    EngineOption("--kv-mib", "kv_bytes", mebibytes, "N", "size of the KV cache in MiB (compact)"),
    EngineOption("--block-size", "block_size", int, "N", "tokens per KV block"),
    EngineOption("--tokens-per-s", "tokens_per_s", float, "N", "pace of each stream (echo)"),
    EngineOption("--tokens-per-step", "tokens_per_step", int, "N", "tokens per step (echo)"),
)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m inference",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--gateway", action="append", required=True, metavar="URL",
        help="ws:// or wss:// address of a gateway; repeat it for several")  # fmt: skip
    add("--name", required=True, help="the node's name, as its credential was issued for")
    add("--model", required=True, type=Path, metavar="PATH", help=MODEL_HELP)
    add("--engine", choices=sorted(ENGINES), default="compact",
        help="compact serves a model, echo repeats the prompt, for benchmarks (default: compact)",
        )  # fmt: skip
    add("--pool", default="default", help="the pool it serves in (default: default)")
    add("--region", default="local", help="where it stands (default: local)")
    add("--credits", type=int, metavar="N",
        help="jobs at once, shared evenly among the gateways (default: the engine's own figure)",
        )  # fmt: skip
    add("--drain-deadline", type=float, default=DRAIN_DEADLINE_S, metavar="SECONDS",
        help=f"how long running jobs may take after SIGTERM (default: {DRAIN_DEADLINE_S:.0f})",
        )  # fmt: skip
    add("--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"), default="INFO",
        help="logs go to standard error (default: INFO)")  # fmt: skip
    group = made.add_argument_group("engine options", "Each is refused by an engine without it.")
    for option in ENGINE_OPTIONS:
        group.add_argument(
            option.flag, dest=f"engine_{option.field}", type=option.kind, metavar=option.metavar,
            help=option.help,
        )  # fmt: skip
    return made


def build_engine(args: argparse.Namespace) -> Engine:
    """Import the chosen engine and construct it; raises `BadOption` or `ModelError`."""
    entry = ENGINES[args.engine]
    try:
        options_class = getattr(importlib.import_module(entry.options_module), entry.options)
        engine_class = getattr(importlib.import_module(entry.module), entry.engine)
    except ImportError as error:
        raise BadOption(f"--engine: {args.engine} cannot be loaded: {error}") from error
    known = {each.name for each in fields(options_class)}
    chosen: dict[str, Any] = {}
    for option in ENGINE_OPTIONS:
        value = getattr(args, f"engine_{option.field}")
        if value is None:
            continue
        if option.field not in known:
            raise BadOption(f"{option.flag}: the {args.engine} engine has no such option")
        chosen[option.field] = value
    if args.credits is not None:
        chosen[entry.credits_option] = args.credits
    try:
        options = options_class(**chosen)
    except ValueError as error:
        raise BadOption(str(error)) from error
    engine: Engine = engine_class(args.model, options)
    return engine


def node_options(args: argparse.Namespace) -> NodeOptions:
    """The node's own options; raises `BadOption`."""
    credential = os.environ.get(CREDENTIAL_VARIABLE, "")
    if not credential:
        raise BadOption(f"{CREDENTIAL_VARIABLE}: is not set in the environment")
    return NodeOptions(
        gateways=tuple(dict.fromkeys(gateway_url(url) for url in args.gateway)),
        name=args.name,
        credential=credential,
        pool=args.pool,
        region=args.region,
        credits=args.credits,
        drain_deadline_s=args.drain_deadline,
    )


async def serve(args: argparse.Namespace, options: NodeOptions) -> int:
    """Run the node until a signal or its own end; returns the exit status."""
    engine = build_engine(args)
    node = Node(engine, ModelAssets(args.model), options)
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    signalled = asyncio.create_task(told.wait())
    running = asyncio.create_task(_start_and_wait(node))
    try:
        await asyncio.wait([signalled, running], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        await drain(node, options.drain_deadline_s)
        return 0
    finally:
        for task in (signalled, running):
            task.cancel()
        await asyncio.gather(signalled, running, return_exceptions=True)
        await node.close()


async def _start_and_wait(node: Node) -> int:
    await node.start()
    stop = await node.stopped
    return stop.value


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    # Idle OpenMP threads must sleep, or they take the cores that gateway and loop need. libgomp
    # reads this once, when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    args = parser().parse_args(argv)
    logging.basicConfig(level=args.log_level, format=LOG_FORMAT, stream=sys.stderr)
    logging.getLogger("websockets").setLevel(logging.WARNING)
    try:
        return asyncio.run(serve(args, node_options(args)))
    except BadOption as error:
        sys.stderr.write(f"python -m inference: {error}\n")
        return EXIT_USAGE
    except ModelError as error:
        sys.stderr.write(f"python -m inference: the model cannot be served: {error}\n")
        return EXIT_MODEL
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
