"""`manage.py pool_set`: makes or changes a pool. A door to the service, no rules."""

import json
from argparse import ArgumentTypeError, BooleanOptionalAction
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from controlplane.catalog.models import PlanMode, PoolRole, Task
from controlplane.catalog.pools import pool_draft, pool_set
from controlplane.catalog.selectors import pool_find
from controlplane.core.arguments import arguments_named
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.money import micro_from_usd

FIELDS = {
    "task": "--task",
    "role": "--role",
    "nodes_min": "--min",
    "nodes_max": "--max",
    "warm_schedule": "--warm-schedule",
    "start_command": "--start-command",
    "card_hour_micro": "--card-hour",
    "cards_per_node": "--cards",
    "separate_caches": "--separate-caches",
    "plan_mode": "--plan-mode",
}


class Command(BaseCommand):
    """What is not said keeps its value, or the default of a new pool."""

    help = "Create or change a pool of nodes."

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("name", metavar="NAME", help="a-z, 0-9 and -")
        add("--task", choices=Task.values, help="task of its models; cannot be changed later")
        add("--role", choices=PoolRole.values, help="phases that its nodes run")
        add("--min", dest="nodes_min", type=int, metavar="N", help="nodes kept warm")
        add("--max", dest="nodes_max", type=int, metavar="N", help="maximum number of nodes")
        add("--warm-schedule", type=_json, metavar="JSON",
            help='[{"days": ["mon"], "from": "08:00", "to": "18:00", "timezone": "Europe/Berlin",'
            ' "nodes_min": 2}]')  # fmt: skip
        add("--start-command", metavar="COMMAND",
            help="what `fleet drive` runs for one node; it adds --gateway, --name, --pool",
            )  # fmt: skip
        add("--card-hour", dest="card_hour_micro", type=_micro, metavar="USD",
            help="cost per GPU-hour in USD, such as 2.50")  # fmt: skip
        add("--cards", dest="cards_per_node", type=int, metavar="N", help="GPUs per node")
        add("--separate-caches", action=BooleanOptionalAction,
            help="use only nodes that isolate the prefix caches of tenants")  # fmt: skip
        add("--plan-mode", choices=PlanMode.values,
            help="who follows its plan: nobody, autoscalers, or autoscalers and agents",
            )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        known = pool_find(name=options["name"])
        given = {name: options[name] for name in FIELDS if options[name] is not None}
        with arguments_named(name="NAME", __all__="--min, --max", **FIELDS):
            pool = pool_set(actor=OPERATOR, draft=pool_draft(options["name"], given))
        made = "Changed" if known else "Made"
        self.stdout.write(
            f"{made} the pool {pool.name}: {pool.nodes_min} to {pool.nodes_max} nodes."
        )


def _micro(text: str) -> int:
    try:
        return micro_from_usd(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ArgumentTypeError(f"is not valid JSON: {error}") from error
