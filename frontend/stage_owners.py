"""Owners and budgets of the seven stages as pages show them."""

from __future__ import annotations

from controlplane.slos.selectors import stage_owners
from frontend.objectives import runbook_link
from frontend.stage_rows import Owner


def owners_now() -> dict[str, Owner]:
    """All seven; one that nobody took has its public budget."""
    return {
        name: Owner(owner.team, owner.email, owner.budget_us, runbook_link(owner.runbook))
        for name, owner in stage_owners().items()
    }
