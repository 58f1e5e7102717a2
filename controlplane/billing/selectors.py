"""Reads of money for pages and jobs, inside the caller's organization scope."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from controlplane.billing.models import Budget, OpenHold, Transfer


def transfers_of(request: uuid.UUID) -> list[Transfer]:
    """The ledger lines of one request, in the order of their slots."""
    return list(Transfer.objects.filter(request=request).order_by("slot"))


def open_hold_of(request: uuid.UUID) -> OpenHold | None:
    """The hold of a request that is still under way."""
    return OpenHold.objects.filter(request=request).first()


def budgets_of(subjects: Iterable[uuid.UUID]) -> dict[uuid.UUID, Budget]:
    """Budgets by the id of the key, project or organization that they limit."""
    return {budget.id: budget for budget in Budget.objects.filter(id__in=list(subjects))}


def budgets_with_terms(subjects: Iterable[uuid.UUID]) -> dict[uuid.UUID, Budget]:
    """The same with what was agreed on about each."""
    rows = Budget.objects.filter(id__in=list(subjects)).select_related("terms")
    return {budget.id: budget for budget in rows}
