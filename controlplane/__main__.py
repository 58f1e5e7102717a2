"""`sluice …`: one command for everything; `python -m controlplane …` is the same.

It imports Django only for what needs it, and torch never: nodes and agents are started from here.
"""

import pkgutil
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from inference.contract.version import VERSION

PROGRAM = "sluice"
MANAGE = "controlplane.managing:manage"


class ConsoleCommand(NamedTuple):
    """What a word stands for: the words of a command of Django's, and what the list says of it."""

    words: tuple[str, ...]
    about: str


# Programs that need no installation here: their entry points, which take their arguments.
PROGRAMS = {
    "node": ("inference.__main__:main", "start a node, or check a model (python -m inference)"),
    "preflight": (
        "controlplane.insights.management.commands.preflight:main",
        "check a request before it is sent, with a key and an address",
    ),
    "agent": ("inference.agent.__main__:main", "run the agent of a host"),
}
COMMANDS: Mapping[str, ConsoleCommand] = {
    "run": ConsoleCommand(("sluice", "run"), "start everything on this machine, and keep it up"),
    "status": ConsoleCommand(("sluice", "status"), "show what is running"),
    "stop": ConsoleCommand(("sluice", "stop"), "stop everything"),
    "doctor": ConsoleCommand(("doctor",), "check this machine, and say what to do"),
    "backup": ConsoleCommand(("backup",), "back up database and secrets while it serves"),
    "restore": ConsoleCommand(("restore",), "restore a backup into an empty installation"),
    "secrets": ConsoleCommand(("secrets",), "replace a secret while it serves"),
    "upgrade": ConsoleCommand(("upgrade",), "bring the database to this release, or check"),
    "load": ConsoleCommand(("load",), "load a server within bounds, and compare runs"),
    "config": ConsoleCommand(("config",), "export, validate, diff or apply the configuration"),
    "keys create": ConsoleCommand(("keys", "create"), "create a key; prints its secret once"),
    "keys list": ConsoleCommand(("keys", "list"), "list keys without secrets"),
    "keys rotate": ConsoleCommand(("keys", "rotate"), "replace a key, with an overlap"),
    "keys revoke": ConsoleCommand(("keys", "revoke"), "end a key at once"),
    "keys check": ConsoleCommand(("sluice", "key-check"), "find credentials in files, offline"),
    "models list": ConsoleCommand(("listing", "models"), "list models, also those switched off"),
    "models create": ConsoleCommand(("model_create",), "add a model with its price"),
    "models pool": ConsoleCommand(("pool_set",), "create or change a pool"),
    "orgs list": ConsoleCommand(("listing", "orgs"), "list organizations with what they spent"),
    "orgs create": ConsoleCommand(("organization_create",), "create an organization"),
    "orgs project": ConsoleCommand(("project_set",), "change a project"),
    "orgs account": ConsoleCommand(("account_set",), "change an account"),
    "orgs link": ConsoleCommand(("setup_link",), "print a link to set a password"),
    "wallet list": ConsoleCommand(("listing", "wallets"), "list prepaid balances"),
    "wallet": ConsoleCommand(("wallet",), "show a wallet, add funds, decide on grants"),
    "fleet": ConsoleCommand(("fleet",), "show, approve, drain and remove nodes"),
    "plan": ConsoleCommand(("plan",), "plan the nodes of pools, and replay such plans"),
    "compare": ConsoleCommand(("compare",), "compare four ways to call this deployment"),
}


def usage() -> str:
    """The list of commands."""
    lines = {**{name: about for name, (_, about) in PROGRAMS.items()}}
    lines = {name: command.about for name, command in COMMANDS.items()} | lines
    width = max(map(len, lines)) + 2
    listed = "\n".join(f"  {name:<{width}}{about}" for name, about in lines.items())
    return (
        f"usage: {PROGRAM} COMMAND ...\n\n{listed}\n\n"
        f"`{PROGRAM} COMMAND --help` lists options; other words are commands of manage.py "
        "(migrate, verify_ledger, ...).\n"
    )


def resolved(words: Sequence[str]) -> list[str] | None:
    """The words that `manage.py` takes; None where a group lacks its second word."""
    for length in (2, 1):
        command = COMMANDS.get(" ".join(words[:length]))
        if command is not None and len(words) >= length:
            return [*command.words, *words[length:]]
    is_group = any(name.startswith(f"{words[0]} ") for name in COMMANDS)
    return None if is_group else list(words)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--version"]:
        sys.stdout.write(f"{PROGRAM} {VERSION}\n")
        return 0
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(usage())
        return 0 if words else 2
    if words[0] in PROGRAMS:
        entry, _ = PROGRAMS[words[0]]
        status: int = pkgutil.resolve_name(entry)(words[1:])
        return status
    command = resolved(words)
    if command is None:
        asks = words[1:2] in (["-h"], ["--help"])
        (sys.stdout if asks else sys.stderr).write(usage())
        return 0 if asks else 2
    pkgutil.resolve_name(MANAGE)([PROGRAM, *command])
    return 0


if __name__ == "__main__":
    sys.exit(main())
