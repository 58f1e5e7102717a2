"""`manage.py sluice preflight FILE`: what a chat completion would meet, before it is sent."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.insights.client import gateway_url, key_from_environment, post
from controlplane.kernel.insights.fixes import AGENTS, CURL
from controlplane.kernel.insights.hygiene import NOT_STREAMED
from controlplane.kernel.money import usd_text

OK = 200
STDIN = "-"
URL_VARIABLE = "SLUICE_URL"


class Command(BaseCommand):
    """Asks the gateway, which alone has the tokenizer; nothing is held, run or charged."""

    # It is all that a developer's machine has of Sluice.
    requires_system_checks: list[str] = []
    help = "Check the body of a chat completion: tokens, price, limits, cache, hygiene."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", help=f"JSON as for /v1/chat/completions; {STDIN} reads stdin")
        parser.add_argument(
            "--client", choices=AGENTS, default=CURL, help="whom fixes are told for, as code"
        )
        parser.add_argument(
            "--url",
            default=os.environ.get(URL_VARIABLE),
            help=f"gateway URL (default: {URL_VARIABLE}, or the local Sluice)",
        )
        parser.add_argument("--json", action="store_true", help="print the raw response")

    def handle(self, *args: Any, **options: Any) -> None:
        agent = AGENTS[options["client"]]
        address, key = f"{gateway_url(options['url'])}/v1/preflight", key_from_environment()
        status, told = post(address, key, _read(options["file"]), agent=agent)
        if status != OK:
            raise CommandError(f"{status}: {told['error']['message']}")
        if options["json"]:
            self.stdout.write(json.dumps(told, indent=2))
        else:
            self.stdout.write("\n".join(lines(told)))
        if not told["would_run"]:
            refusals = "; ".join(f"{one['status']} {one['message']}" for one in told["refusals"])
            raise CommandError(f"It would be refused: {refusals}")


def main(words: Sequence[str]) -> int:
    """The command alone, without an installation's settings while an address is given."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    Command().run_from_argv(["sluice", "preflight", *words])
    return 0


def lines(told: dict[str, Any]) -> list[str]:
    tokens, cost, served = told["tokens"], told["cost"], told["served_by"]
    about = "" if tokens["counted"] else " at most"
    found = [
        f"Route {told['route']}: {served['model']} in pool {served['pool']},"
        f" {served['nodes']} nodes ready",
        f"Prompt{about} {tokens['prompt']:,} tokens, {tokens['cached_predicted']:,} of them cached;"
        f" output at most {tokens['output_at_most']:,}; window {told['context']['window']:,}",
        f"Costs {usd_text(cost['prompt_nano'])} to {usd_text(cost['at_most_nano'])} USD;"
        f" {usd_text(cost['held_nano'])} would be held",
    ]
    for limit in told["limits"]:
        found.append(
            f"Limit of the {limit['scope']}: {limit['remaining']:,} of {limit['limit']:,}"
            f" {limit['dimension']} left{' – binds' if limit['binds'] else ''}"
        )
    streaming = told["streaming"]
    if not streaming["asked"]:
        found.append("Not streamed: the first token is seen when the last is. To stream it:")
        found += _indented(streaming["code"])
    elif not streaming["includes_usage"]:
        found.append("Streamed, without stream_options.include_usage: tokens are not told.")
    for one in told["hygiene"]:
        saves = f", about {usd_text(one['saves_nano'])} USD" if one["saves_nano"] else ""
        found.append(f"{one['kind']}: {one['what']}: {one['tokens']:,} tokens{saves}. {one['fix']}")
        if one["kind"] != NOT_STREAMED:
            found += _indented(one["code"])
    return found


def _indented(code: str) -> list[str]:
    return ["    " + line for line in code.splitlines()]


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error}") from error
