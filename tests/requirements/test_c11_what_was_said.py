"""C11: what was said is kept only where a project wants it: sealed, searchable, audited, deleted.

One real gateway with an echo node, which answers with the words of the prompt, and the pages and
the API of the same database. Each test has a project of its own.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import httpx2
import pytest
from django.test import Client

from controlplane.composed.demo import MODEL
from controlplane.contents.services import (
    ContentFilter,
    Keeping,
    content_page,
    contents_configure,
    contents_forget,
)
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.kernel.contents.kept import KeptContent
from controlplane.kernel.ids import public_id, uuid_of
from controlplane.tenants.adminkeys.services import AdminKeyDraft, adminkey_create
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.models import Organization, Project, User
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.services import project_create
from controlplane.tenants.sign_in.accounts import user_create
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.people import signed_in
from tests.support.product import Plan, Product, demo_key, running_product
from tests.support.servers import Servers
from tests.support.waiting import until

DAYS = 30
OK = 200
SECRET = "xylophone"
END_USER = "patient-4711"
TABLE = "SELECT count(*) FROM kept_contents WHERE project = %s"


@pytest.fixture(scope="module")
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers, Plan()) as product:
        yield product


@dataclass(frozen=True)
class Tenant:
    """A project of the demo's organization with its key, its owner and a developer."""

    project: Project
    secret: str
    owner: User
    developer: User

    @property
    def api(self) -> str:
        organization = public_id("org", self.project.organization_id)
        return f"/api/organizations/{organization}/projects/{public_id('proj', self.project.id)}"


@orm
def make_tenant(days: int, readers: list[str]) -> Tenant:
    name = uuid.uuid4().hex
    organization = Organization.objects.get(id=demo_key().organization_id)
    owner, developer = (
        user_create(actor=OPERATOR, email=f"{role}-{name}@example.org") for role in ("o", "d")
    )
    for user, role in ((owner, Role.OWNER), (developer, Role.DEVELOPER)):
        membership_set(actor=OPERATOR, organization=organization, user=user, role=role)
    project = project_create(actor=owner, organization=organization, name=name)
    if days:
        contents_configure(actor=owner, project=project, keeping=Keeping(days, readers))
    key = apikey_create(actor=owner, project=project, label="app")
    return Tenant(project, key.secret, owner, developer)


async def tenant_of(
    product: Product, days: int = DAYS, readers: tuple[str, ...] = ("owner",)
) -> Tenant:
    """One that the gateway knows."""
    made = await make_tenant(days, list(readers))
    headers = {"authorization": f"Bearer {made.secret}"}
    async with httpx2.AsyncClient(base_url=product.urls[0], headers=headers) as client:

        async def known() -> bool:
            return (await client.get("/v1/models")).status_code == OK

        await until(known)
    return made


async def say(product: Product, tenant: Tenant, words: str, **more: object) -> uuid.UUID:
    """Ask, whole or streamed, and return the request's id."""
    body = {
        "model": MODEL.name,
        "messages": [{"role": "user", "content": words}],
        "max_tokens": 64,
        "user": END_USER,
        **more,
    }
    headers = {"authorization": f"Bearer {tenant.secret}"}
    async with httpx2.AsyncClient(base_url=product.urls[0], headers=headers) as client:
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        return uuid_of(answer.headers["x-request-id"], "req")


def kept(tenant: Tenant) -> int:
    ((count,),) = rows(TABLE, tenant.project.id)
    return int(count)


async def is_kept(tenant: Tenant, count: int = 1) -> None:
    await until(lambda: kept(tenant) == count)


@orm
def found(tenant: Tenant, **query: str) -> list[KeptContent]:
    wanted = ContentFilter.of(query)
    return content_page(actor=tenant.owner, project=tenant.project, wanted=wanted).rows


@orm
def get(user: User, path: str, **query: str) -> tuple[int, bytes]:
    answer = signed_in(user).get(path, query)
    return answer.status_code, answer.getvalue() if answer.streaming else answer.content


@orm
def post(user: User, path: str, **fields: str) -> tuple[int, bytes]:
    answer = signed_in(user).post(path, fields, follow=True)
    return answer.status_code, answer.content


@orm
def api_delete(user: User, path: str) -> dict[str, int]:
    answer = signed_in(user).delete(path)
    assert answer.status_code == 200
    told: dict[str, int] = answer.json()
    return told


def readings(tenant: Tenant) -> list[tuple[str, str, dict[str, object]]]:
    return rows(
        "SELECT actor_label, action, detail FROM audit_entries WHERE subject_id = %s"
        " AND action IN ('content.read', 'content.delete') ORDER BY id",
        tenant.project.id,
    )


def dump() -> str:
    """The whole database as text; bytes are hexadecimal in it."""
    tables = rows(
        "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r'"
        " AND relnamespace = 'public'::regnamespace"
    )
    return "\n".join(
        text for (table,) in tables for (text,) in rows(f"SELECT t::text FROM {table} t")
    )


def is_nowhere(secret: str) -> bool:
    """Whether it stands in no row, neither in the clear nor in bytes."""
    whole = dump()
    return secret not in whole and secret.encode().hex() not in whole


async def test_off_by_default_nothing_is_kept(product: Product) -> None:
    quiet, other = await tenant_of(product, days=0), await tenant_of(product)
    await say(product, quiet, f"my {SECRET} is out of tune")
    # What is said after it elsewhere is there: so nothing of it is on its way.
    await say(product, other, "something else")
    await is_kept(other)
    assert kept(quiet) == 0
    assert is_nowhere(SECRET)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_kept_is_sealed_and_found_by_its_words(
    product: Product, stream: bool
) -> None:
    tenant = await tenant_of(product)
    request = await say(product, tenant, f"Is my {SECRET} out of tune?", stream=stream)
    await say(product, tenant, "An unrelated question.")
    await is_kept(tenant, 2)
    assert is_nowhere(SECRET)
    (content,) = await found(tenant, words=f"{SECRET.upper()} tune", end_user=END_USER)
    assert content.request == request.bytes
    assert SECRET in content.body.decode()
    assert content.choices[0].text
    assert content.choices[0].finish in ("stop", "length")
    assert (content.end_user, content.model, content.path) == (
        END_USER, MODEL.name, "/v1/chat/completions",
    )  # fmt: skip
    for nothing in ({"words": "piano"}, {"end_user": "somebody"}, {"status": "failed"}):
        assert await found(tenant, **nothing) == []


async def test_only_readers_read_and_every_reading_is_audited(product: Product) -> None:
    tenant = await tenant_of(product)
    request = await say(product, tenant, f"A {SECRET}, please.")
    await is_kept(tenant)
    page = f"/conversations/{public_id('proj', tenant.project.id)}/{public_id('req', request)}"
    api = f"{tenant.api}/contents/{public_id('req', request)}"
    assert (await post(tenant.developer, page))[0] == 403
    assert (await get(tenant.developer, api))[0] == 403
    assert readings(tenant) == []
    status, shown = await post(tenant.owner, page)
    assert status == 200 and SECRET.encode() in shown
    status, told = await get(tenant.owner, api)
    assert status == 200 and SECRET in json.loads(told)["body"]["messages"][0]["content"]
    ids = [public_id("req", request)]
    assert (
        readings(tenant)
        == [(tenant.owner.email, "content.read", {"use": "read", "requests": ids})] * 2
    )


async def test_a_project_may_let_more_roles_read(product: Product) -> None:
    tenant = await tenant_of(product, readers=("owner", "developer"))
    await say(product, tenant, f"A {SECRET}, please.")
    await is_kept(tenant)
    status, listed = await get(tenant.developer, f"{tenant.api}/contents", words=SECRET)
    assert status == 200 and len(json.loads(listed)["data"]) == 1


@orm
def program_reads(tenant: Tenant, actions: list[str]) -> int:
    made = adminkey_create(
        actor=tenant.owner,
        organization_id=tenant.project.organization_id,
        draft=AdminKeyDraft("reader", actions),
    )
    headers = {"authorization": f"Bearer {made.secret}"}
    return Client().get(f"{tenant.api}/contents", headers=headers).status_code


async def test_programs_need_a_scope_of_its_own(product: Product) -> None:
    tenant = await tenant_of(product)
    assert await program_reads(tenant, ["request.view"]) == 403
    assert await program_reads(tenant, ["content.read"]) == 200


async def test_the_search_page_shows_and_exports(product: Product) -> None:
    tenant = await tenant_of(product)
    await say(product, tenant, f"A {SECRET}, please.")
    await is_kept(tenant)
    asked = {"project": public_id("proj", tenant.project.id), "words": SECRET}
    status, shown = await get(tenant.owner, "/conversations", **asked)
    assert status == 200 and SECRET.encode() in shown
    status, lines = await get(tenant.owner, "/conversations.jsonl", **asked)
    assert status == 200
    (line,) = lines.decode().splitlines()
    assert SECRET in json.loads(line)["body"]["messages"][0]["content"]
    assert [detail["use"] for _, _, detail in readings(tenant)] == ["search", "export"]


async def test_it_opens_in_the_playground(product: Product) -> None:
    tenant = await tenant_of(product)
    request = await say(product, tenant, f"A {SECRET}, please.", metadata={"tune": "0.25"})
    await is_kept(tenant)
    fields = {
        "project": public_id("proj", tenant.project.id),
        "request": public_id("req", request),
    }
    status, shown = await post(tenant.owner, "/playground", **fields)
    assert status == 200 and SECRET.encode() in shown and b"0.25" in shown
    assert (await post(tenant.developer, "/playground", **fields))[0] == 403


async def test_one_end_user_is_forgotten_on_request(product: Product) -> None:
    tenant = await tenant_of(product)
    for user in (END_USER, END_USER, "somebody-else"):
        await say(product, tenant, f"A {SECRET}, please.", user=user)
    await is_kept(tenant, 3)
    told = await api_delete(tenant.owner, f"{tenant.api}/contents?end_user={END_USER}")
    assert told == {"deleted": 2}
    assert [one.end_user for one in await found(tenant)] == ["somebody-else"]
    actor, action, detail = readings(tenant)[0]
    assert (actor, action, detail["requests"]) == (tenant.owner.email, "content.delete", 2)
    assert END_USER not in str(detail)


async def test_one_request_is_deleted(product: Product) -> None:
    tenant = await tenant_of(product)
    request = await say(product, tenant, f"A {SECRET}, please.")
    await is_kept(tenant)
    api = f"{tenant.api}/contents/{public_id('req', request)}"
    assert await api_delete(tenant.owner, api) == {"deleted": 1}
    assert kept(tenant) == 0
    assert (await get(tenant.owner, api))[0] == 404


async def test_what_is_older_than_its_days_is_dropped(product: Product) -> None:
    tenant = await tenant_of(product, days=2)
    for _ in range(2):
        await say(product, tenant, f"A {SECRET}, please.")
    await is_kept(tenant, 2)
    # An id says when: one of three days ago.
    rows(
        "UPDATE kept_contents SET request = (lpad(to_hex((extract(epoch FROM now()"
        " - interval '3 days') * 1000)::bigint), 12, '0') || right(request::text, 23))::uuid"
        " WHERE request = (SELECT min(request::text)::uuid FROM kept_contents WHERE project = %s)",
        tenant.project.id,
    )
    assert len(await found(tenant)) == 1
    assert kept(tenant) == 2
    assert await orm(contents_forget)() == 1
    assert kept(tenant) == 1


@orm
def configure(tenant: Tenant, days: int) -> None:
    keeping = Keeping(days, ["owner"])
    contents_configure(actor=tenant.owner, project=tenant.project, keeping=keeping)


async def test_switching_off_destroys_the_key(product: Product) -> None:
    tenant = await tenant_of(product)
    request = await say(product, tenant, f"A {SECRET}, please.")
    await is_kept(tenant)
    ((sealed,),) = rows("SELECT sealed FROM kept_contents WHERE project = %s", tenant.project.id)
    await configure(tenant, 0)
    assert rows("SELECT content_key FROM projects WHERE id = %s", tenant.project.id) == [(None,)]
    assert await found(tenant) == []
    await orm(contents_forget)()
    assert kept(tenant) == 0
    # Under a new key what was sealed before stays shut, even where its row comes back.
    await configure(tenant, DAYS)
    rows(
        "INSERT INTO kept_contents (request, organization, project, terms, sealed)"
        " VALUES (%s, %s, %s, '{}', %s)",
        request,
        tenant.project.organization_id,
        tenant.project.id,
        sealed,
    )
    assert kept(tenant) == 1
    assert await found(tenant) == []


async def test_the_key_of_one_project_opens_nothing_of_another(product: Product) -> None:
    first, second = await tenant_of(product), await tenant_of(product)
    await say(product, first, f"A {SECRET}, please.")
    await say(product, second, "Nothing of note.")
    await is_kept(first)
    await is_kept(second)
    rows(
        "UPDATE kept_contents SET sealed = (SELECT sealed FROM kept_contents WHERE project = %s)"
        " WHERE project = %s",
        first.project.id,
        second.project.id,
    )
    assert await found(second) == []
    assert await found(second, words=SECRET) == []
