"""The demo configuration: what a first start finds, made by the services that pages use too.

Each part is made only where it is missing, so it may run at every start.
"""

from controlplane.billing.budgets.models import BudgetScope
from controlplane.billing.budgets.services import budget_set
from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.catalog.selectors import model_find, pool_find, price_list
from controlplane.catalog.services import ModelDraft, PriceDraft, model_create, price_publish
from controlplane.core.audit.entries import OPERATOR
from controlplane.embedded.demo import Demo
from controlplane.fleet.models import NodeCredential
from controlplane.fleet.selectors import node_credential_active
from controlplane.fleet.services import node_credential_create, node_credential_revoke
from controlplane.kernel.money import NANO_PER_USD
from controlplane.quotas.services import rate_limit_set
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.models import Project, User
from controlplane.tenants.selectors import apikey_list, organization_list, project_list
from controlplane.tenants.services import organization_create, project_create
from controlplane.tenants.sign_in import accounts

ADMIN_EMAIL = "admin@localhost"
ORGANIZATION_NAME = "Demo"
PROJECT_NAME = "default"
KEY_LABEL = "demo"
NODE_NAME = "node-1"
POOL = "default"
BUDGET_USD = 100
REQUESTS_PER_MIN = 6_000
TOKENS_PER_MIN = 6_000_000
MODEL = ModelDraft(
    name="sluice-5m",
    pool=POOL,
    context_window=4096,
    output_tokens_default=256,
    output_tokens_max=1024,
)
# USD per million tokens: input 0.15, cached input 0.03, output 0.60.
PRICE = PriceDraft(input_pico=150_000, cached_pico=30_000, output_pico=600_000, batch_permille=500)
EMBED_NODE_NAME = "node-embed"
# The packaged encoder; `--engine embed` offers it under this name.
EMBED_MODEL = ModelDraft(
    name="all-minilm-l6-v2", pool="embeddings", context_window=512, task="embed"
)
# USD per million tokens: 0.02.
EMBED_PRICE = PriceDraft(input_pico=20_000, cached_pico=20_000, output_pico=0)


def demo_ensure(*, new_node_credential: bool, embed: bool, new_embed_credential: bool) -> Demo:
    """Make what is missing, with `embed` also what a node that embeds needs; tells what is new.

    A node credential that is to be new replaces the earlier ones.
    """
    admin = accounts.user_find(email=ADMIN_EMAIL)
    first_start = admin is None
    if admin is None:
        admin = accounts.user_create(actor=OPERATOR, email=ADMIN_EMAIL, is_staff=True)
    project = _project(admin)
    _model(MODEL, PRICE)
    if embed:
        _model(EMBED_MODEL, EMBED_PRICE)
    new_embed = embed and _node_credential(EMBED_NODE_NAME, EMBED_MODEL, renew=new_embed_credential)
    # Until a password is set, every start gives a fresh link and ends the one before.
    fresh = not admin.has_usable_password()
    return Demo(
        first_start=first_start,
        api_key=_key(admin, project),
        node_credential=_node_credential(NODE_NAME, MODEL, renew=new_node_credential),
        setup_path=accounts.SETUP_PATH + accounts.setup_link_create(actor=OPERATOR, user=admin)
        if fresh
        else None,
        node_name=NODE_NAME,
        embed_credential=new_embed or None,
        embed_name=EMBED_NODE_NAME,
        admin_email=ADMIN_EMAIL,
    )


def _project(admin: User) -> Project:
    organizations = organization_list(user=admin)
    if not organizations:
        made = organization_create(actor=OPERATOR, name=ORGANIZATION_NAME, owner=admin)
        budget_set(
            made.id, made.id, scope=BudgetScope.ORGANIZATION, limit_nano=BUDGET_USD * NANO_PER_USD
        )
        organizations = [made]
    projects = project_list(user=admin)
    if projects:
        return projects[0]
    return project_create(actor=OPERATOR, organization=organizations[0], name=PROJECT_NAME)


def _model(draft: ModelDraft, price: PriceDraft) -> None:
    if pool_find(name=draft.pool) is None:
        pool_set(actor=OPERATOR, draft=PoolDraft(name=draft.pool, task=draft.task))
    model = model_find(name=draft.name) or model_create(actor=OPERATOR, draft=draft)
    if not price_list(model=model):
        price_publish(actor=OPERATOR, model=model, draft=price)


def _key(admin: User, project: Project) -> str | None:
    if apikey_list(user=admin):
        return None
    created = apikey_create(actor=OPERATOR, project=project, label=KEY_LABEL, lifetime_days=None)
    rate_limit_set(
        actor=OPERATOR,
        subject=created.key,
        requests_per_min=REQUESTS_PER_MIN,
        tokens_per_min=TOKENS_PER_MIN,
    )
    return created.secret


def _node_credential(name: str, model: ModelDraft, *, renew: bool) -> str | None:
    earlier: list[NodeCredential] = node_credential_active(node_name=name)
    if earlier and not renew:
        return None
    for credential in earlier:
        node_credential_revoke(actor=OPERATOR, credential=credential, reason="replaced")
    created = node_credential_create(
        actor=OPERATOR, name=name, pool=model.pool, models=[model.name]
    )
    return created.secret
