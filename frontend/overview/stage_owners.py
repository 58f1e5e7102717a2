"""Owners and budgets of the seven stages as pages show them."""

from controlplane.slos.runbooks import runbook_path
from controlplane.slos.selectors import stage_owners
from frontend.overview.stage_rows import Owner


def owners_now() -> dict[str, Owner]:
    """All seven; one that nobody took has its public budget."""
    return {
        name: Owner(owner.team, owner.email, owner.budget_us, runbook_path(owner.runbook))
        for name, owner in stage_owners().items()
    }
