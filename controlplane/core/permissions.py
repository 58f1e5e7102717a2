"""Who may do what: one matrix of roles and actions; rights are written nowhere else."""

from enum import StrEnum


class Role(StrEnum):
    """What a member is in an organization."""

    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"
    FINANCE = "finance"
    VIEWER = "viewer"


class Action(StrEnum):
    """What can be asked for; the first part names the thing."""

    ORGANIZATION_VIEW = "organization.view"
    ORGANIZATION_UPDATE = "organization.update"
    MEMBER_VIEW = "member.view"
    MEMBER_MANAGE = "member.manage"
    MEMBER_RECOVER = "member.recover"
    PROJECT_CREATE = "project.create"
    PROJECT_UPDATE = "project.update"
    KEY_VIEW = "key.view"
    KEY_CREATE = "key.create"
    KEY_REVOKE = "key.revoke"
    LIMIT_SET = "limit.set"
    BUDGET_SET = "budget.set"
    REQUEST_VIEW = "request.view"
    LEDGER_VIEW = "ledger.view"
    INVOICE_ISSUE = "invoice.issue"
    PERIOD_CLOSE = "period.close"
    EXPORT_MAKE = "export.make"
    TEMPLATE_VIEW = "template.view"
    TEMPLATE_MANAGE = "template.manage"
    ADMIN_KEY_MANAGE = "admin_key.manage"
    SECURITY_SET = "security.set"
    PLAYGROUND_USE = "playground.use"
    AUDIT_VIEW = "audit.view"
    SLO_VIEW = "slo.view"
    SLO_MANAGE = "slo.manage"
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


PLATFORM_ACTIONS = frozenset(
    {
        Action.USER_CREATE,
        Action.ORGANIZATION_CREATE,
        Action.CATALOG_MANAGE,
        Action.FLEET_VIEW,
        Action.FLEET_MANAGE,
        Action.ROUTING_MANAGE,
        Action.CREDIT_GRANT,
        Action.MARGIN_VIEW,
        Action.CONFIG_MANAGE,
        Action.SLO_INSTALLATION,
        Action.INSTALLATION_AUDIT,
    }
)
_SEE = frozenset({Action.ORGANIZATION_VIEW, Action.REQUEST_VIEW, Action.SLO_VIEW})
_BUILD = frozenset(
    {
        Action.KEY_VIEW,
        Action.KEY_CREATE,
        Action.KEY_REVOKE,
        Action.PLAYGROUND_USE,
        Action.TEMPLATE_VIEW,
        Action.TEMPLATE_MANAGE,
    }
)
_MONEY = frozenset(
    {
        Action.LEDGER_VIEW,
        Action.BUDGET_SET,
        Action.INVOICE_ISSUE,
        Action.PERIOD_CLOSE,
        Action.EXPORT_MAKE,
    }
)
_RUN = frozenset(
    {
        Action.ORGANIZATION_UPDATE,
        Action.MEMBER_VIEW,
        Action.MEMBER_MANAGE,
        Action.MEMBER_RECOVER,
        Action.ADMIN_KEY_MANAGE,
        Action.PROJECT_CREATE,
        Action.PROJECT_UPDATE,
        Action.LIMIT_SET,
        Action.AUDIT_VIEW,
        Action.SLO_MANAGE,
    }
)

MATRIX: dict[Role, frozenset[Action]] = {
    Role.OWNER: _SEE | _BUILD | _MONEY | _RUN | {Action.SECURITY_SET},
    Role.ADMIN: _SEE | _BUILD | _MONEY | _RUN,
    Role.DEVELOPER: _SEE | _BUILD,
    Role.FINANCE: _SEE | _MONEY | {Action.AUDIT_VIEW},
    Role.VIEWER: _SEE,
}
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
