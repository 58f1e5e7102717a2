"""Shares of a budget that were reached: noted once in each period, and sent by mail."""

import uuid
from collections.abc import Iterator

import structlog
from django.core.mail import send_mail
from django.db import connection

from controlplane.billing.budgets.models import Budget, BudgetAlert, BudgetTerms
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.jobs.each import each_alone
from controlplane.core.permissions import Action, Role, role_allows
from controlplane.core.scope import organization_scope
from controlplane.kernel.ids import id_of_type
from controlplane.kernel.money import usd_text
from controlplane.tenants.people.selectors import member_list
from controlplane.tenants.selectors import organization_ids

ALERT_PAGE_ROWS = 500
HUNDRED = 100
log = structlog.get_logger(__name__)


def raise_alerts() -> int:
    """Note, and tell by mail, every share that a budget has newly reached; returns how many."""
    organizations = organization_ids(user=OPERATOR)
    return sum(
        sum(each_alone("raise_alerts", budgets, _raise)) for budgets in _alert_pages(organizations)
    )


def _raise(budget: Budget) -> int:
    with organization_scope([budget.organization]):
        new = [percent for percent in reached(budget) if _note(budget, percent)]
    if new:
        _tell(budget, max(new))
    return len(new)


def spent_nano(budget: Budget, terms: BudgetTerms) -> int:
    """What counts against this period: charged since it began, less what was given back."""
    return budget.posted - terms.base - terms.given


def reached(budget: Budget) -> list[int]:
    """The percentages of its alerts that a budget has reached; it comes with its terms."""
    terms = budget.terms
    available = terms.allowance + terms.carried
    spent = spent_nano(budget, terms)
    return [percent for percent in terms.alerts if spent * HUNDRED >= percent * available]


def _alert_pages(organizations: list[uuid.UUID]) -> Iterator[list[Budget]]:
    last = uuid.UUID(int=0)
    while True:
        with organization_scope(organizations):
            rows = Budget.objects.filter(id__gt=last, terms__alerts__len__gt=0)
            page = list(rows.select_related("terms").order_by("id")[:ALERT_PAGE_ROWS])
        if not page:
            return
        yield page
        last = page[-1].id


def _note(budget: Budget, percent: int) -> bool:
    terms = budget.terms
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO budget_alerts (budget, began_at, percent, organization, spent, allowance)"
            " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [
                budget.id,
                terms.began_at,
                percent,
                budget.organization,
                spent_nano(budget, terms),
                terms.allowance + terms.carried,
            ],
        )
        return bool(cursor.rowcount)


def forget_unreached(budget_id: uuid.UUID) -> None:
    """A raised limit can be reached again: what is below it now is told again then."""
    budget = Budget.objects.select_related("terms").get(id=budget_id)
    alerts = BudgetAlert.objects.filter(budget=budget_id, began_at=budget.terms.began_at)
    alerts.exclude(percent__in=reached(budget)).delete()


def _tell(budget: Budget, percent: int) -> None:
    members = [
        one.membership for one in member_list(actor=OPERATOR, organization_id=budget.organization)
    ]
    to = [one.user.email for one in members if role_allows(Role(one.role), Action.BUDGET_SET)]
    terms = budget.terms
    what = f"the {budget.scope} {budget.id}"
    try:
        send_mail(
            f"Sluice: {percent} % of a budget is spent",
            f"Of the budget of {what}, {usd_text(spent_nano(budget, terms))} USD of"
            f" {usd_text(terms.allowance + terms.carried)} USD are spent."
            f" Period: {terms.period} ({terms.zone}), since {terms.began_at:%Y-%m-%d %H:%M} UTC.\n",
            None,
            to,
        )
    except OSError as error:
        # The pages show the alert in any case.
        log.warning(
            "alert_not_mailed", budget=id_of_type(budget.scope, budget.id), reason=str(error)
        )
