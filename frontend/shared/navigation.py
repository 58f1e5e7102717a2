"""The side bar: its groups and links, in their order on the page."""

from typing import NamedTuple

from controlplane.core.permissions import Action


class NavigationEntry(NamedTuple):
    """One link of the side bar: the URL's name, its words, and the right it needs.

    `shared`: the page shows figures of all tenants.
    """

    name: str
    label: str
    action: Action
    shared: bool = False


Entries = tuple[NavigationEntry, ...]
# Groups of links that belong together, of which a page shows its own open.
NAVIGATION: dict[str, Entries] = {
    "Observe": (
        NavigationEntry("overview", "Overview", Action.ORGANIZATION_VIEW),
        NavigationEntry("requests", "Requests", Action.REQUEST_VIEW),
        NavigationEntry("explore", "Explore", Action.REQUEST_VIEW),
        NavigationEntry("latency", "Latency", Action.ORGANIZATION_VIEW, shared=True),
        NavigationEntry("cache", "Cache", Action.ORGANIZATION_VIEW),
        NavigationEntry("slos", "SLOs", Action.SLO_VIEW),
        NavigationEntry("stages", "Stages", Action.SLO_VIEW, shared=True),
        NavigationEntry("insights", "Insights", Action.REQUEST_VIEW),
        NavigationEntry("conversations", "Conversations", Action.CONTENT_READ),
    ),
    "Build": (
        NavigationEntry("playground", "Playground", Action.PLAYGROUND_USE),
        NavigationEntry("models", "Models", Action.CATALOG_VIEW),
        NavigationEntry("keys", "Keys", Action.KEY_VIEW),
        NavigationEntry("prompts", "Templates", Action.TEMPLATE_VIEW),
        NavigationEntry("batches", "Batches", Action.BATCH_MANAGE),
        NavigationEntry("api_page", "API & snippets", Action.KEY_VIEW),
    ),
    "Organization": (
        NavigationEntry("projects", "Projects", Action.ORGANIZATION_VIEW),
        NavigationEntry("members", "Members", Action.MEMBER_VIEW),
        NavigationEntry("limits", "Limits", Action.ORGANIZATION_VIEW),
        NavigationEntry("admin_keys", "Admin keys", Action.ADMIN_KEY_MANAGE),
        NavigationEntry("audit", "Audit", Action.AUDIT_VIEW),
    ),
    "Billing": (
        NavigationEntry("spend", "Spend", Action.LEDGER_VIEW),
        NavigationEntry("budgets", "Budgets", Action.LEDGER_VIEW),
        NavigationEntry("invoices", "Invoices", Action.LEDGER_VIEW),
        NavigationEntry("wallet", "Wallet", Action.LEDGER_VIEW),
        NavigationEntry("ledger", "Ledger", Action.LEDGER_VIEW),
        NavigationEntry("exports", "Exports", Action.EXPORT_MAKE),
    ),
    "Installation": (
        NavigationEntry("organizations", "Organizations", Action.ORGANIZATION_CREATE),
        NavigationEntry("connections", "Connections", Action.CATALOG_MANAGE),
        NavigationEntry("live_map", "Live map", Action.FLEET_VIEW),
        NavigationEntry("fleet", "Fleet", Action.FLEET_VIEW),
        NavigationEntry("deployments", "Deployments", Action.FLEET_VIEW),
        NavigationEntry("routing", "Routing", Action.ROUTING_MANAGE),
        NavigationEntry("shares", "Shares", Action.ROUTING_MANAGE),
        NavigationEntry("configuration", "Configuration", Action.CONFIG_MANAGE),
        NavigationEntry("grants", "Top-ups", Action.CREDIT_GRANT),
        NavigationEntry("margin", "Margin", Action.MARGIN_VIEW),
        NavigationEntry("audit_installation", "Installation audit", Action.INSTALLATION_AUDIT),
    ),
}
