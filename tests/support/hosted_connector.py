"""`manage.py connector` with a stand-in for the hosted engine: the remote engine, for one model.

Run as a program it is the command; the node that this starts runs the file once more, which reads
its first line of configuration and becomes a node of the remote engine with what that says.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec

AS_NODE = "--as-node"
ROOT = Path(__file__).parents[2]


def command() -> None:
    """The command; its node is this file."""
    sys.path.insert(0, str(ROOT))
    os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
    from importlib import import_module

    import_module("django").setup()
    module: Any = import_module("controlplane.connections.management.commands.connector")
    real = module.ConnectorChild
    module.ConnectorChild = lambda argv, env, say: real(
        [sys.executable, __file__, AS_NODE, *argv[5:]], env, say
    )
    import_module("django.core.management").call_command("connector", *sys.argv[1:])


def node() -> None:
    """Become a node of the remote engine for the first model that is told."""
    told = msgspec.json.decode(sys.stdin.readline())
    (connection,) = told["connections"]
    (model,) = connection["models"]
    words = {
        "--engine": "remote",
        "--url": connection["url"],
        "--model-name": model["name"],
        "--upstream-model": model["upstream"],
        "--context-window": str(model["context_window"]),
        "--vision": "off",
        "--server": "openai",
        "--probe-interval": "0",
    }
    argv = [sys.executable, "-m", "inference", *sys.argv[2:]]
    for name, value in words.items():
        argv += [name, value]
    os.environ["SLUICE_UPSTREAM_KEY"] = connection["keys"][0]["secret"]
    os.chdir(ROOT)
    os.execv(sys.executable, argv)


if __name__ == "__main__":
    node() if sys.argv[1:2] == [AS_NODE] else command()
