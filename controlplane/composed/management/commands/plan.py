"""`manage.py plan`: nodes that pools should have, why, and plans replayed beside other fleets."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from controlplane.composed.planning.plans import PlannedPool, plans_read
from controlplane.composed.planning.replays import (
    REPLAY_DAYS_MAX,
    cost_nano,
    replayed,
)
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.money import usd_short

HUNDRED = 100.0


class Command(BaseCommand):
    """Prints; what follows a plan is said by the pool's mode (`pool_set --plan-mode`)."""

    help = "Plan the nodes of pools from objectives, measured rates and a forecast."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("pool", nargs="?", metavar="POOL", help="default: all that generate")
        told = f"also replay it over the last 1 to {REPLAY_DAYS_MAX} days"
        parser.add_argument("--replay", type=int, metavar="DAYS", help=told)

    def handle(self, *args: Any, **options: Any) -> None:
        days, now = options["replay"], timezone.now()
        if days is not None and not 1 <= days <= REPLAY_DAYS_MAX:
            raise CommandError(f"--replay is 1 to {REPLAY_DAYS_MAX}.")
        found = plans_read(actor=OPERATOR, now=now)
        chosen = [one for one in found if options["pool"] in (None, one.measured.pool.name)]
        if options["pool"] and not chosen:
            known = ", ".join(one.measured.pool.name for one in found)
            raise CommandError(f"POOL: {options['pool']!r} is not one of {known}.")
        for one in chosen:
            self._print(one)
            if days is not None:
                self._print_replay(one, days)

    def _print(self, one: PlannedPool) -> None:
        pool, plan = one.measured.pool, one.plan
        self.stdout.write(
            f"{pool.name}: {plan.nodes} planned, {one.measured.nodes} ready, mode {pool.plan_mode}"
        )
        for reason in plan.reasons:
            self.stdout.write(f"  {reason}")

    def _print_replay(self, one: PlannedPool, days: int) -> None:
        fleets = replayed(one, days=days, now=timezone.now())
        if not fleets:
            self.stdout.write("  nothing to replay: no requests were measured")
        for fleet in fleets:
            self.stdout.write(
                f"  {fleet.name:<24} {fleet.node_hours:>9,.1f} node-hours"
                f" {usd_short(cost_nano(one, fleet)):>12}"
                f"  late {HUNDRED * fleet.late_share:.2f} % of {fleet.requests:,.0f}"
            )
