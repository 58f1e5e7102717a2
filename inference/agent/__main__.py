"""`python -m inference.agent`: enrol this host, then run what the control plane wants on it."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from inference import logs
from inference.agent.agent import Agent
from inference.agent.control import ControlPlane
from inference.agent.inventory import nvml_module
from inference.node.options import BadOption

EXIT_USAGE = 2
DATA_MODE = 0o700
DESCRIPTION = """\
Report what this host has, and run the nodes that the control plane wants on it. It listens on
nothing. At its first start it needs the one-time token in SLUICE_ENROL_TOKEN; its own credential is
kept in the data folder, mode 600. HostModels of the hub come from HF_ENDPOINT with HF_TOKEN.

SIGTERM or Ctrl-C drains all nodes.
exit status: 0 drained, 1 the control plane refuses this host, 2 a wrong option."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m inference.agent",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--control", required=True, metavar="URL", help="https:// address of the control plane")
    add("--name", required=True, metavar="NAME", help="the host's name, as its token was made for")
    add("--data", required=True, type=Path, metavar="DIR",
        help="for the credential, logs and fetched models")  # fmt: skip
    add("--models", action="append", default=[], type=Path, metavar="DIR",
        help="a folder under which models may be taken; repeat it for several")  # fmt: skip
    add("--log-format", choices=logs.FORMATS, default="plain",
        help="json: one object a line (default: plain)")  # fmt: skip
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    args = parser().parse_args(argv)
    logs.set_up("INFO", args.log_format)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        args.data.mkdir(mode=DATA_MODE, parents=True, exist_ok=True)
        control = ControlPlane(args.control)
        control.enrol(os.environ, args.data, args.name)
    except (BadOption, OSError) as error:
        sys.stderr.write(f"python -m inference.agent: {error}\n")
        return EXIT_USAGE
    return Agent(control, args.data, args.models, nvml_module()).run(stop)


if __name__ == "__main__":
    sys.exit(main())
