"""Things of the organization under test, by the name of the parameter that says them in a path.

A sample is looked up as `<segment before it>/<parameter>` first, then by the parameter's name.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from django.utils import timezone

from controlplane.catalog.prompts import PromptVersions, prompt_create
from controlplane.changes.limits import LimitChanges
from controlplane.changes.prices import PriceChanges
from controlplane.connections.keys import key_add
from controlplane.contents.services import Keeping, contents_configure
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role, organization_scope
from controlplane.fleet.models import ModelDigest
from controlplane.fleet.services import TokenDraft, node_credential_create, token_create
from controlplane.hosts.services import DeploymentDraft, deployment_create, host_add
from controlplane.insights.models import WorksheetRevision
from controlplane.insights.saved import view_save
from controlplane.kernel.ids import public_id
from controlplane.routing.services import RuleVersions
from controlplane.slos.models import Alert, Objective
from controlplane.slos.services import channel_add, objective_create
from controlplane.tenants.adminkeys.models import KEY_ACTIONS
from controlplane.tenants.adminkeys.services import AdminKeyDraft, adminkey_create
from controlplane.tenants.keys import CreatedKey, apikey_create
from controlplane.tenants.models import KEEPS_DAYS_MAX, User
from controlplane.tenants.people.services import invitation_create, membership_set
from controlplane.tenants.sign_in.accounts import user_create
from tests.browser.history import write_history
from tests.core.callers import OTHER_OWNER, STAFF, Callers
from tests.support.batches import make_batch
from tests.support.documents import make_invoice, make_pending_grant
from tests.support.exports import made_by_job, month_spec
from tests.support.hosted import make_connection
from tests.support.objectives import draft
from tests.support.people import Cast, make_cast
from tests.support.rules import generates, make_models, publish
from tests.support.said import keep_row

MODEL = "tiny"


@dataclass(frozen=True)
class Things:
    """One of each, in the organization under test unless it is the installation's."""

    cast: Cast
    callers: Callers
    key: CreatedKey
    request: uuid.UUID
    enrolment: uuid.UUID
    node: uuid.UUID
    digest: uuid.UUID
    draft: int
    prompt: str
    change: int
    batch: uuid.UUID
    export: uuid.UUID
    invoice: uuid.UUID
    grant: uuid.UUID
    admin_key: uuid.UUID
    invitation: uuid.UUID
    objective: uuid.UUID
    alert: uuid.UUID
    channel: uuid.UUID
    view: uuid.UUID
    connection: uuid.UUID
    connection_key: uuid.UUID
    worksheet: uuid.UUID


@dataclass(frozen=True)
class Sample:
    """How to say a thing in a path; `tenant` where it is one organization's alone."""

    said: Callable[[Things], object]
    tenant: bool = False


def of_tenant(said: Callable[[Things], object]) -> Sample:
    """A thing that other tenants must not find."""
    return Sample(said, tenant=True)


WORKSHEET = {"rate": 1.0, "in": 10.0}
SHEET = {
    "seconds": 1.0, "at_once": 1.0, "nodes_needed": 1, "nodes_spare": 0, "gpu_hours_day": 24.0,
    "per_s_max": 1.0, "uses": [{"resource": "slots", "used": 1.0, "per_s_max": 1.0}],
}  # fmt: skip
SAMPLES: dict[str, Sample] = {
    # In a body or a query.
    "organization": of_tenant(lambda t: t.cast.acme.id),
    "project": of_tenant(lambda t: t.cast.project.id),
    # In a path.
    "apikey_id": of_tenant(lambda t: t.key.key.id.hex),
    "inference_key": of_tenant(lambda t: t.key.key.id),
    "project_id": of_tenant(lambda t: t.cast.project.id),
    "key_id": of_tenant(lambda t: t.admin_key),
    "request_id": of_tenant(lambda t: t.request.hex),
    "chart": Sample(lambda t: "stages"),
    "fleet/chart": Sample(lambda t: "events"),
    "plan/chart": Sample(lambda t: "replay"),
    "explore/chart": Sample(lambda t: "groups"),
    "cache/chart": Sample(lambda t: "cache"),
    "spend/panel": Sample(lambda t: "project"),
    "token": Sample(lambda t: "no-such-link"),
    "token_id": Sample(lambda t: t.enrolment),
    "node_id": Sample(lambda t: t.node.hex),
    "nodes/name": Sample(lambda t: "node-1"),
    "act/name": Sample(lambda t: MODEL),
    "of/name": Sample(lambda t: MODEL),
    "hosts/name": Sample(lambda t: "host-1"),
    "deployments/name": Sample(lambda t: "first"),
    "pools/name": Sample(lambda t: "default"),
    "<org:organization>/name": of_tenant(lambda t: t.prompt),
    "templates/name": of_tenant(lambda t: t.prompt),
    "<int:version>/action": Sample(lambda t: "copy"),
    "action": Sample(lambda t: "drain"),
    "step": Sample(lambda t: "copy"),
    "provider_id": Sample(lambda t: "no-such"),
    "decision": Sample(lambda t: "approve"),
    "digest_id": Sample(lambda t: t.digest),
    "version": Sample(lambda t: t.draft),
    "changes/version": Sample(lambda t: t.change),
    "organization_id": of_tenant(lambda t: t.cast.acme.id),
    "export_id": of_tenant(lambda t: t.export),
    "invoice_id": of_tenant(lambda t: t.invoice),
    "grant_id": of_tenant(lambda t: t.grant),
    "form": Sample(lambda t: "pdf"),
    "user_id": of_tenant(lambda t: t.cast.bob.id),
    "invitation_id": of_tenant(lambda t: t.invitation),
    "objective_id": of_tenant(lambda t: t.objective),
    "connection_id": Sample(lambda t: t.connection),
    "keys/key_id": Sample(lambda t: t.connection_key),
    "alert_id": of_tenant(lambda t: t.alert),
    "duty": Sample(lambda t: "routing"),
    "channel_id": of_tenant(lambda t: t.channel),
    "view_id": of_tenant(lambda t: t.view),
    "stage": Sample(lambda t: "s1_admission"),
    "runbooks/slug": Sample(lambda t: "ttft"),
    # Their owner's alone: of others they are not found, whoever asks.
    "session_id": Sample(lambda t: uuid.UUID(int=1).hex),
    "factor_id": Sample(lambda t: uuid.UUID(int=1).hex),
    "charge_id": of_tenant(lambda t: t.request),
    "subject_id": of_tenant(lambda t: t.cast.acme.id),
    "revision_id": Sample(lambda t: t.worksheet),
    "batch_id": of_tenant(lambda t: t.batch),
    "<batch:batch_id>/kind": Sample(lambda t: "output"),
    "period": Sample(lambda t: "2025-10"),
    "model": Sample(lambda t: MODEL),
}


def make_things() -> Things:
    """Needs a fresh database; the people are signed up, nobody is signed in."""
    cast = make_cast()
    users = _users(cast)
    make_models(MODEL)
    publish(generates("first", MODEL))
    key = apikey_create(actor=cast.alice, project=cast.project, label="matrix")
    host_add(actor=OPERATOR, name="host-1")
    wanted = DeploymentDraft(model=MODEL, source_kind="folder", source_name="/models/tiny")
    deployment_create(actor=OPERATOR, name="first", draft=wanted)
    enrolment = token_create(actor=OPERATOR, draft=TokenDraft(pool="default"))
    node = node_credential_create(actor=OPERATOR, name="node-1", pool="default")
    digest = ModelDigest.objects.create(
        model=MODEL, digest="0" * 64, offered_by="node-1", decided_at=timezone.now()
    )
    connection = make_connection()
    objective = objective_create(actor=cast.alice, organization=cast.acme.id, draft=draft())
    return Things(
        cast=cast,
        callers=Callers(users, key.secret, _admin_secret(cast)),
        key=key,
        request=_said(cast, write_history(cast, key.key, MODEL)[-1]),
        enrolment=enrolment.token.id,
        node=node.credential.node_id,
        digest=digest.id,
        draft=RuleVersions(OPERATOR).draft_create([generates("next", MODEL)]).version,
        prompt=_make_prompt(cast),
        change=_make_changes(cast),
        admin_key=adminkey_create(
            actor=cast.alice,
            organization_id=cast.acme.id,
            draft=AdminKeyDraft("matrix", ("key.view",)),
        ).key.id,
        invitation=invitation_create(
            actor=cast.alice, organization=cast.acme, email="soon@example.org", role=Role.VIEWER
        )[0].id,
        objective=objective.id,
        alert=_alert(objective),
        channel=channel_add(
            actor=cast.alice, organization=cast.acme.id, kind="email", address="ops@example.org"
        ).id,
        view=view_save(
            actor=cast.alice, organization_id=cast.acme.id, name="slow", query="by=key", shared=True
        ).id,
        connection=connection.id,
        connection_key=key_add(actor=OPERATOR, connection=connection, secret="sk-sample-key").id,
        worksheet=WorksheetRevision.objects.create(
            pool="default", quarter="2025-Q4", by="operator", figures=WORKSHEET, sheet=SHEET
        ).id,
        invoice=make_invoice(cast.acme.id).id,
        grant=make_pending_grant(cast.acme.id).id,
        batch=make_batch(cast.acme.id, cast.project.id),
        export=made_by_job(cast, month_spec(cast.acme.id, "usage"))[0].id,
    )


def _users(cast: Cast) -> dict[str, User]:
    users = {"owner": cast.alice, "developer": cast.bob, STAFF: cast.stella}
    users[OTHER_OWNER] = cast.charlie
    for role in (Role.ADMIN, Role.FINANCE, Role.VIEWER):
        users[role.value] = user_create(actor=OPERATOR, email=f"{role.value}@example.org")
    for name, user in users.items():
        if name in (Role.ADMIN, Role.FINANCE, Role.VIEWER, STAFF):
            role = Role.VIEWER if name == STAFF else Role(name)
            membership_set(actor=cast.alice, organization=cast.acme, user=user, role=role)
    return users


def _alert(objective: Objective) -> uuid.UUID:
    """One that fires."""
    with organization_scope([objective.organization]):
        fired = {"severity": "ticket", "rule": "ticket_slow"}
        return Alert.objects.create(
            organization=objective.organization, objective=objective, **fired
        ).id


def _said(cast: Cast, request: uuid.UUID) -> uuid.UUID:
    """The same request, of which is kept what was said."""
    keeping = Keeping(KEEPS_DAYS_MAX, ["owner"])
    keep_row(contents_configure(actor=cast.alice, project=cast.project, keeping=keeping), request)
    return request


def _make_changes(cast: Cast) -> int:
    """Drafts of both organizations' limits and of prices, which could be put in force; their
    number.
    """
    for one in (cast.acme, cast.other):
        limit = {"of": public_id("org", one.id), "requests_per_min": 60_000}
        LimitChanges(OPERATOR, one.id).draft_create({"limits": [limit]})
    price = {"model": MODEL, "input_pico": 2, "cached_pico": 1, "output_pico": 3}
    return PriceChanges(OPERATOR).draft_create({"prices": [price]}).version


def _make_prompt(cast: Cast) -> str:
    """A template with a version in force and a draft, numbered as those of the rules."""
    template = prompt_create(actor=cast.alice, organization_id=cast.acme.id, name="support")
    body = {"messages": [{"role": "user", "content": "x"}]}
    draft = PromptVersions(cast.alice, template).draft_create(body)
    PromptVersions(cast.alice, draft.template).publish(draft)
    PromptVersions(cast.alice, template).draft_create(body)
    return template.name


def _admin_secret(cast: Cast) -> str:
    """Of a key that may do all that keys may."""
    draft = AdminKeyDraft("all", [action.value for action in KEY_ACTIONS])
    made = adminkey_create(actor=cast.alice, organization_id=cast.acme.id, draft=draft)
    return made.secret
