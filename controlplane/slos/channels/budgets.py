"""Shares of budgets that were reached, told to the channels of the organization."""

from typing import Any

from django.conf import settings
from django.utils import timezone

from controlplane.billing.budgets.models import Budget
from controlplane.billing.budgets.services import (
    HUNDRED,
    budget_name,
    raise_alerts,
    reached_words,
    spent_nano,
)
from controlplane.kernel.ids import id_of_type
from controlplane.slos.channels.words import BUDGET
from controlplane.slos.models import Channel, Delivery


def budgets_tell() -> int:
    """Note and tell every share that a budget has newly reached; returns how many."""
    return raise_alerts(budget_queue)


def budget_queue(budget: Budget, percent: int) -> None:
    """Queue one message for each channel; part of the transaction that notes the share."""
    now, about = timezone.now(), _about(budget, percent)
    for channel in Channel.objects.filter(organization=budget.organization):
        Delivery.objects.create(
            organization=budget.organization, channel=channel, kind=channel.kind, event=BUDGET,
            about=about, due_at=now,
        )  # fmt: skip


def _about(budget: Budget, percent: int) -> dict[str, Any]:
    terms, (title, text) = budget.terms, reached_words(budget, percent)
    return {
        "event": "budget.reached",
        "budget": id_of_type(budget.scope, budget.id),
        "name": budget_name(budget),
        "summary": f"{title}. {text}",
        "title": title,
        "text": text,
        "severity": "page" if percent >= HUNDRED else "ticket",
        "percent": percent,
        "spent_nano": spent_nano(budget, terms),
        "available_nano": terms.allowance + terms.carried,
        "period": terms.period,
        "zone": terms.zone,
        "began_at": terms.began_at.isoformat(),
        "link": f"{settings.PAGES_URL}/budgets",
    }
