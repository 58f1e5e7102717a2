"""Organizations as staff open them: with an owner, a first project and a budget, all or nothing."""

from typing import NamedTuple

from django.core.exceptions import ValidationError
from django.db import transaction

from controlplane.billing.budgets.models import UNLIMITED_NANO, BudgetScope
from controlplane.billing.budgets.services import budget_set
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.kernel.money import NANO_PER_USD
from controlplane.tenants.access import require
from controlplane.tenants.models import Organization, User
from controlplane.tenants.selectors import organizations_named
from controlplane.tenants.services import organization_create
from controlplane.tenants.sign_in.accounts import setup_link_create, user_create, user_find

FIRST_PROJECT = "default"
FIRST_BUDGET_NANO = 100 * NANO_PER_USD


class Opened(NamedTuple):
    """A new organization; `token` sets its owner's password, where the account is new too."""

    organization: Organization
    owner: User
    token: str | None


def organization_open(
    *, actor: Actor, name: str, owner: str, budget_nano: int = FIRST_BUDGET_NANO
) -> Opened:
    """Make it; the account of the address `owner` is made where there is none.

    Raises ValidationError (`name`, `owner`, `budget_nano`).
    """
    require(actor, Action.ORGANIZATION_CREATE)
    if organizations_named(name=name.strip()):
        raise ValidationError({"name": "An organization with this name already exists."})
    if not 0 <= budget_nano <= UNLIMITED_NANO:
        most = UNLIMITED_NANO // NANO_PER_USD
        raise ValidationError({"budget_nano": f"Must be 0 to {most:,} US dollars."})
    with transaction.atomic():
        known = _known(owner)
        user = known or _fresh(actor, owner)
        made = organization_create(actor=actor, name=name, owner=user, project=FIRST_PROJECT)
        budget_set(made.id, made.id, scope=BudgetScope.ORGANIZATION, limit_nano=budget_nano)
        token = None if known else setup_link_create(actor=actor, user=user)
    return Opened(made, user, token)


def _known(email: str) -> User | None:
    found = user_find(email=email)
    if found is not None and not found.is_active:
        raise ValidationError({"owner": "This account is closed."})
    return found


def _fresh(actor: Actor, email: str) -> User:
    try:
        return user_create(actor=actor, email=email)
    except ValidationError as error:
        raise ValidationError({"owner": error.message_dict["email"]}) from error
