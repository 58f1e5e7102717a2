"""Rules for a viewer: tenants by their names, in words and in the fields of a form."""

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.kernel.ids import public_id, uuid_of
from controlplane.kernel.rules import TENANTS, RouteRule
from controlplane.routing import selectors
from controlplane.tenants import selectors as tenants
from frontend.routing import rows
from frontend.shared.access import Viewer

_NAMES_OF = {"organizations": tenants.organization_names, "projects": tenants.project_names}
_BY_NAME = {"organizations": tenants.organizations_by_name, "projects": tenants.projects_by_name}


def words(viewer: Viewer, rules: Sequence[RouteRule]) -> list[rows.RuleRow]:
    return rows.rule_rows(rules, tenant_names(viewer, rules))


def tenant_names(viewer: Viewer, rules: Sequence[RouteRule]) -> dict[str, str]:
    """Names of the tenants that rules name, by hex id."""
    named, projects = rows.tenant_ids(rules)
    if not named and not projects:
        return {}
    known = {
        **tenants.organization_names(actor=viewer.user, ids=selectors.hex_ids(named)),
        **tenants.project_names(actor=viewer.user, ids=selectors.hex_ids(projects)),
    }
    return {one.hex: name for one, name in known.items()}


def with_ids(viewer: Viewer, match: Mapping[str, Any]) -> dict[str, Any]:
    """The conditions of a form, with ids for the names of tenants; unknown ones stay."""
    changed = dict(match)
    for field in TENANTS.keys() & match.keys():
        names = [each for each in match[field] if "\0" not in each]
        known = _BY_NAME[field](actor=viewer.user, names=names)
        ids = {name: public_id(TENANTS[field], one) for name, one in known.items()}
        # Whoever names an organization after the id of another gets none of its rules.
        changed[field] = [
            each if _is_id(each, TENANTS[field]) else ids.get(each, each) for each in match[field]
        ]
    return changed


def _is_id(text: str, prefix: str) -> bool:
    try:
        return bool(uuid_of(text, prefix))
    except ValueError:
        return False


def with_names(viewer: Viewer, match: Mapping[str, Any]) -> dict[str, Any]:
    """The same the other way, as a form shows them; a name that two tenants have stays an id."""
    changed = dict(match)
    for field in TENANTS.keys() & match.keys():
        ids = {text: _digits(text, TENANTS[field]) for text in match[field]}
        names = _NAMES_OF[field](actor=viewer.user, ids=selectors.hex_ids(ids.values()))
        known = _BY_NAME[field](actor=viewer.user, names=names.values())
        shown = {one.hex: name for name, one in known.items()}
        changed[field] = [shown.get(ids[text], text) for text in match[field]]
    return changed


def _digits(text: str, prefix: str) -> str:
    try:
        return uuid_of(text, prefix).hex
    except ValueError:
        return ""
