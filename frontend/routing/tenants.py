"""Rules in words for a viewer: tenants by their names."""

from collections.abc import Sequence

from controlplane.kernel.rules import RouteRule
from controlplane.routing import selectors
from controlplane.tenants.selectors import organization_names, project_names
from frontend.routing import rows
from frontend.shared.access import Viewer


def words(viewer: Viewer, rules: Sequence[RouteRule]) -> list[rows.RuleRow]:
    return rows.rule_rows(rules, tenant_names(viewer, rules))


def tenant_names(viewer: Viewer, rules: Sequence[RouteRule]) -> dict[str, str]:
    """Names of the tenants that rules name, by hex id."""
    named, projects = rows.tenant_ids(rules)
    if not named and not projects:
        return {}
    known = {
        **organization_names(actor=viewer.user, ids=selectors.hex_ids(named)),
        **project_names(actor=viewer.user, ids=selectors.hex_ids(projects)),
    }
    return {one.hex: name for one, name in known.items()}
