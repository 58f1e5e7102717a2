"""Who may do what, by one matrix of roles and actions; and which rows a transaction may see.

Rights are written nowhere else. Rows are seen by `SET LOCAL app.orgs` and `app.person`, which row
policies read: without a scope the app's role sees no row of a protected table.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Self

from django.db import connection, transaction

ORGANIZATIONS, PERSON = "app.orgs", "app.person"
_WRITE = "SELECT set_config(%s, %s, true)"
_REPLACE = (
    "WITH before AS MATERIALIZED (SELECT coalesce(current_setting(%s, true), '') AS value)"
    " SELECT value, set_config(%s, %s, true) FROM before"
)


class Role(StrEnum):
    """What a member is in an organization."""

    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"
    FINANCE = "finance"
    VIEWER = "viewer"


ADMINS = frozenset({Role.OWNER, Role.ADMIN})
BUILDERS = ADMINS | {Role.DEVELOPER}
BOOKKEEPERS = ADMINS | {Role.FINANCE}
EVERYONE = frozenset(Role)
NOBODY = frozenset[Role]()


class Action(StrEnum):
    """What can be asked for, and the roles that may; the first part names the thing."""

    roles: frozenset[Role]

    def __new__(cls, name: str, roles: frozenset[Role] = NOBODY) -> Self:
        made = str.__new__(cls, name)
        made._value_, made.roles = name, roles
        return made

    ORGANIZATION_VIEW = "organization.view", EVERYONE
    ORGANIZATION_UPDATE = "organization.update", ADMINS
    MEMBER_VIEW = "member.view", ADMINS
    MEMBER_MANAGE = "member.manage", ADMINS
    MEMBER_RECOVER = "member.recover", ADMINS
    CATALOG_VIEW = "catalog.view", EVERYONE
    PROJECT_CREATE = "project.create", ADMINS
    PROJECT_UPDATE = "project.update", ADMINS
    KEY_VIEW = "key.view", BUILDERS
    KEY_CREATE = "key.create", BUILDERS
    KEY_REVOKE = "key.revoke", BUILDERS
    LIMIT_SET = "limit.set", ADMINS
    BUDGET_SET = "budget.set", BOOKKEEPERS
    REQUEST_VIEW = "request.view", EVERYONE
    # Of what was said in a project that keeps it; a role reads what the project lets it read.
    CONTENT_READ = "content.read", EVERYONE
    CONTENT_DELETE = "content.delete", ADMINS
    CONTENT_MANAGE = "content.manage", frozenset({Role.OWNER})
    LEDGER_VIEW = "ledger.view", BOOKKEEPERS
    INVOICE_ISSUE = "invoice.issue", BOOKKEEPERS
    PERIOD_CLOSE = "period.close", BOOKKEEPERS
    EXPORT_MAKE = "export.make", BOOKKEEPERS
    TEMPLATE_VIEW = "template.view", BUILDERS
    TEMPLATE_MANAGE = "template.manage", BUILDERS
    ADMIN_KEY_MANAGE = "admin_key.manage", ADMINS
    SECURITY_SET = "security.set", frozenset({Role.OWNER})
    PLAYGROUND_USE = "playground.use", BUILDERS
    BATCH_MANAGE = "batch.manage", BUILDERS
    AUDIT_VIEW = "audit.view", BOOKKEEPERS
    SLO_VIEW = "slo.view", EVERYONE
    SLO_MANAGE = "slo.manage", ADMINS
    SLO_HANDLE = "slo.handle", BUILDERS
    # Of the whole installation, not of one organization: only for staff.
    USER_CREATE = "user.create"
    ORGANIZATION_CREATE = "organization.create"
    CATALOG_MANAGE = "catalog.manage"
    FLEET_VIEW = "fleet.view"
    FLEET_MANAGE = "fleet.manage"
    ROUTING_MANAGE = "routing.manage"
    CREDIT_GRANT = "credit.grant"
    MARGIN_VIEW = "margin.view"
    CONFIG_MANAGE = "config.manage"
    SLO_INSTALLATION = "slo.installation"
    INSTALLATION_AUDIT = "installation.audit"


PLATFORM_ACTIONS = frozenset(action for action in Action if not action.roles)
MATRIX = {role: frozenset(action for action in Action if role in action.roles) for role in Role}
# An admin runs the organization but cannot make or unmake its owners.
GRANTABLE: dict[Role, frozenset[Role]] = {
    Role.OWNER: frozenset(Role),
    Role.ADMIN: frozenset(Role) - {Role.OWNER},
    Role.DEVELOPER: frozenset(),
    Role.FINANCE: frozenset(),
    Role.VIEWER: frozenset(),
}


def role_allows(role: Role | None, action: Action) -> bool:
    """Whether a member in this role may do it; no role allows nothing."""
    return role is not None and action in MATRIX[role]


@contextmanager
def organization_scope(ids: Iterable[uuid.UUID]) -> Iterator[None]:
    """A transaction that sees and writes rows of these organizations and of no other.

    Scopes nest: the inner one replaces the outer until it ends.
    """
    with _set(ORGANIZATIONS, "{" + ",".join(str(one) for one in ids) + "}"):
        yield


@contextmanager
def person_scope(user_id: uuid.UUID) -> Iterator[None]:
    """A transaction that also sees in which organizations this user is a member."""
    with _set(PERSON, str(user_id)):
        yield


@contextmanager
def _set(name: str, value: str) -> Iterator[None]:
    nested = connection.in_atomic_block
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_REPLACE, [name, name, value])
        outer = cursor.fetchone()[0]
        yield
        # The end of a transaction or the rollback to a savepoint restores it by itself.
        if nested:
            cursor.execute(_WRITE, [name, outer])
