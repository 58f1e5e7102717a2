"""P4, P7, P9 by what tenants set: policies of a project, a client's own list of models, and bounds
of hops, through real processes: a gateway, an echo node, which answers with the words of its
prompt, and both databases.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from controlplane.blueprint.configuration import configuration_apply, configuration_export
from controlplane.catalog.services import ModelDraft, PriceDraft, model_create, price_publish
from controlplane.composed.demo import MODEL, POOL
from controlplane.contents.services import Keeping, contents_configure
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.kernel.ids import public_id, uuid_of
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.models import Organization, Project, User
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.services import project_create
from controlplane.tenants.sign_in.accounts import user_create
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.people import signed_in
from tests.support.product import Plan, Product, demo_key, running_product
from tests.support.raw import told
from tests.support.servers import Servers
from tests.support.waiting import until

MAIL = "ann.lee@example.org"
AWAY = "away"
OK = 200
BODY_S = 1


def bounds(number: int) -> Mapping[str, str]:
    return {"SLUICE_BODY_S": str(BODY_S), "SLUICE_FIRST_TOKEN_S": "1,2"}


@pytest.fixture(scope="module")
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers, Plan(gateway_env=bounds)) as product:
        yield product


@dataclass(frozen=True)
class Team:
    """A project with its key and its owner."""

    project: Project
    secret: str
    owner: User

    @property
    def api(self) -> str:
        organization = public_id("org", self.project.organization_id)
        return f"/api/organizations/{organization}/projects/{public_id('proj', self.project.id)}"


@orm
def make_team() -> Team:
    name = uuid.uuid4().hex
    organization = Organization.objects.get(id=demo_key().organization_id)
    owner = user_create(actor=OPERATOR, email=f"{name}@example.org")
    membership_set(actor=OPERATOR, organization=organization, user=owner, role=Role.OWNER)
    project = project_create(actor=owner, organization=organization, name=name)
    contents_configure(actor=owner, project=project, keeping=Keeping(30, ["owner"]))
    return Team(project, apikey_create(actor=owner, project=project, label="app").secret, owner)


@orm
def patch(team: Team, policies: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    answer = signed_in(team.owner).patch(
        team.api, {"policies": policies}, content_type="application/json"
    )
    return answer.status_code, answer.json()


@orm
def page(team: Team, path: str) -> str:
    text: str = signed_in(team.owner).get(path).content.decode()
    return text


async def ask(product: Product, team: Team, **fields: Any) -> httpx2.Response:
    body = {
        "model": MODEL.name,
        "messages": [{"role": "user", "content": "Hello."}],
        "max_tokens": 64,
        **fields,
    }
    headers = {"authorization": f"Bearer {team.secret}"}
    async with httpx2.AsyncClient(base_url=product.urls[0], headers=headers) as client:
        return await client.post("/v1/chat/completions", json=body)


async def known(product: Product, team: Team, **fields: Any) -> None:
    """Wait until the gateway refuses what the new policies refuse, or knows the key."""

    async def refuses() -> bool:
        status = (await ask(product, team, **fields)).status_code
        return status == (400 if fields else OK)

    await until(refuses)


async def test_policies_are_set_by_api_kept_to_and_audited(product: Product) -> None:
    team = await make_team()
    await known(product, team)
    policies = {"require_max_tokens": True, "unstreamed_tokens_max": 100, "tools_max": 0}
    status, project = await patch(team, policies)
    assert (status, project["policies"]) == (OK, policies)
    await known(product, team, max_tokens=None)
    answer = await ask(product, team, max_tokens=None)
    assert answer.json()["error"]["param"] == "max_tokens"
    assert answer.headers["x-sluice-policy"] == "require_max_tokens"
    assert (await ask(product, team, max_tokens=101)).json()["error"]["param"] == "stream"
    assert (await ask(product, team, max_tokens=101, stream=True)).status_code == OK
    request = answer.headers["x-request-id"]
    await until(
        lambda: rows("SELECT 1 FROM request_records WHERE request = %s", uuid_of(request, "req"))
    )
    shown = await page(team, f"/requests/{request}")
    assert "A policy of its project does not allow it." in shown and "require_max_tokens" in shown
    entries = rows(
        "SELECT detail FROM audit_entries WHERE subject_id = %s AND action = 'project.update'",
        team.project.id,
    )
    assert entries[-1][0]["policies"] == policies


async def test_a_pattern_that_cannot_be_used_is_named(product: Product) -> None:
    team = await make_team()
    bad = {"patterns": [{"name": "a", "pattern": "ok"}, {"name": "b", "pattern": "(?=x)"}]}
    status, error = await patch(team, bad)
    assert status == 400 and error["error"]["param"] == "policies.patterns[1].pattern"
    status, error = await patch(team, {"tools_max": "many"})
    assert status == 400 and error["error"]["param"] == "policies.tools_max"


@pytest.mark.parametrize("stream", [False, True])
async def test_personal_data_never_reaches_the_node_nor_the_database(
    product: Product, stream: bool
) -> None:
    team = await make_team()
    await patch(team, {"personal": {"email": "mask"}, "require_max_tokens": True})
    await known(product, team, max_tokens=None)
    messages = [{"role": "user", "content": f"Write to {MAIL}, please."}]
    answer = await ask(product, team, messages=messages, stream=stream, max_tokens=200)
    assert MAIL in "".join(_words(answer))
    assert answer.headers["x-sluice-masked"] == "email=1"
    request = uuid_of(answer.headers["x-request-id"], "req")
    await until(lambda: rows("SELECT 1 FROM request_records WHERE request = %s", request))
    shown = await page(team, f"/requests/{answer.headers['x-request-id']}")
    assert "1 of email" in shown and MAIL not in shown
    contents = f"{team.api}/contents/{answer.headers['x-request-id']}"
    await until(lambda: rows("SELECT 1 FROM kept_contents WHERE request = %s", request))
    kept = await page(team, contents)
    assert "[EMAIL_" in kept and MAIL not in kept


async def test_a_document_says_them_and_applying_its_export_changes_nothing(
    product: Product,
) -> None:
    team = await make_team()
    policies = {"calls_max": 2, "patterns": [{"name": "staff", "pattern": "ACME-[0-9]{6}"}]}
    await patch(team, policies)

    @orm
    def exported() -> tuple[str, int]:
        text = configuration_export(actor=OPERATOR)
        return text, len(configuration_apply(actor=OPERATOR, text=text))

    text, changes = await exported()
    assert "ACME-[0-9]{6}" in text and changes == 0


@orm
def make_model(name: str) -> None:
    draft = ModelDraft(
        name=name, pool=POOL, context_window=512, output_tokens_default=64, output_tokens_max=256
    )
    made = model_create(actor=OPERATOR, draft=draft)
    price = PriceDraft(input_pico=1, cached_pico=1, output_pico=1)
    price_publish(actor=OPERATOR, model=made, draft=price)


async def test_a_clients_list_leads_on_and_the_answer_names_who_served(product: Product) -> None:
    team = await make_team()
    await known(product, team)
    await make_model(AWAY)

    async def served() -> bool:
        answer = await ask(product, team, model=AWAY, models=[MODEL.name])
        return answer.status_code == OK

    await until(served)
    answer = await ask(product, team, model=AWAY, models=[MODEL.name])
    assert answer.json()["model"] == answer.headers["x-sluice-model"] == MODEL.name
    assert answer.headers["x-sluice-fallback"] == f"2:{MODEL.name}"
    request = answer.headers["x-request-id"]
    await until(
        lambda: rows("SELECT 1 FROM request_records WHERE request = %s", uuid_of(request, "req"))
    )
    shown = await page(team, f"/requests/{request}")
    assert f"Step 1, {AWAY} in pool {POOL}, was passed over" in shown
    assert f"Step 2 served it: {MODEL.name}" in shown
    unknown = await ask(product, team, models=["nowhere"])
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "models[0]")


async def test_bounds_of_hops_are_settings(product: Product) -> None:
    team = await make_team()
    await known(product, team)
    lines = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {team.secret}\r\n"
        "Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
    )
    (answer,) = await told(product.ports[0], lines.encode(), pause_s=0.0)
    assert (answer.status, answer.error["code"]) == (408, "request_timeout")
    assert answer.error["message"] == f"The body did not arrive within {BODY_S} s."


def _words(answer: httpx2.Response) -> list[str]:
    if answer.headers["content-type"].startswith("application/json"):
        return [answer.json()["choices"][0]["message"]["content"]]
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line][:-1]
    choices = [choice for event in events for choice in json.loads(event)["choices"]]
    return [choice["delta"].get("content") or "" for choice in choices]
