"""C11: comments of ratings are seen by who may read what was said, and deleted with it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx2
import pytest

from controlplane.composed.demo import MODEL
from controlplane.kernel.ids import public_id, uuid_of
from tests.requirements.test_c11_what_was_said import (
    DAYS,
    END_USER,
    OK,
    SECRET,
    Tenant,
    api_delete,
    configure,
    get,
    is_kept,
    readings,
    say,
    tenant_of,
)
from tests.support.money import rows
from tests.support.product import Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import until


@pytest.fixture(scope="module")
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers, Plan()) as product:
        yield product


async def rate(product: Product, tenant: Tenant, request: uuid.UUID, comment: str) -> None:
    headers = {"authorization": f"Bearer {tenant.secret}"}
    path = f"/v1/requests/{public_id('req', request)}/feedback"
    async with httpx2.AsyncClient(base_url=product.urls[0], headers=headers) as client:

        async def rated() -> bool:
            answer = await client.post(path, json={"rating": "down", "comment": comment})
            return answer.status_code == OK

        await until(rated)


def comments(tenant: Tenant) -> list[str]:
    found = "SELECT comment FROM request_records WHERE project = %s AND rating < 0 ORDER BY request"
    return [comment for (comment,) in rows(found, tenant.project.id)]


@pytest.mark.parametrize(("days", "deleted"), [(DAYS, 2), (0, 1)])
async def test_comments_of_ratings_go_with_what_they_are_about(
    product: Product, days: int, deleted: int
) -> None:
    """Whether the project keeps anything else or not."""
    tenant, other = await tenant_of(product, days), await tenant_of(product, 0)
    first, _, third = [
        await say(product, tenant, "Is it in tune?", user=user)
        for user in (END_USER, END_USER, "somebody-else")
    ]
    foreign = await say(product, other, "Is it in tune?")
    await is_kept(tenant, 3 if days else 0)
    await rate(product, tenant, first, f"my {SECRET} is not")
    await rate(product, tenant, third, "no")
    await rate(product, other, foreign, "maybe")
    told = await api_delete(tenant.owner, f"{tenant.api}/contents?end_user={END_USER}")
    assert told == {"deleted": deleted}
    assert (comments(tenant), comments(other)) == (["", "no"], ["maybe"])
    ((_, _, detail),) = readings(tenant)
    assert detail["requests"] == deleted and END_USER not in str(detail)
    told = await api_delete(tenant.owner, f"{tenant.api}/contents/{public_id('req', third)}")
    assert told == {"deleted": 1} and comments(tenant) == ["", ""]
    await rate(product, tenant, first, "again")
    await configure(tenant, 0)
    assert (comments(tenant), comments(other)) == (["", ""], ["maybe"])


async def test_only_readers_see_the_comment_of_a_rating(product: Product) -> None:
    tenant = await tenant_of(product, 0)
    request = await say(product, tenant, "Is it in tune?")
    await rate(product, tenant, request, f"my {SECRET} is not")
    for user, shown in ((tenant.owner, True), (tenant.developer, False)):
        status, page = await get(user, f"/requests/{public_id('req', request)}")
        assert (status, b"thumbs down" in page) == (OK, True)
        assert (SECRET.encode() in page) is shown


async def test_a_stored_response_is_deleted_with_its_comment(product: Product) -> None:
    tenant = await tenant_of(product)
    headers = {"authorization": f"Bearer {tenant.secret}"}
    async with httpx2.AsyncClient(base_url=product.urls[0], headers=headers) as client:
        said = {"model": MODEL.name, "input": "Is it in tune?", "store": True}
        made = await client.post("/v1/responses", json=said)
        await is_kept(tenant)
        await rate(product, tenant, uuid_of(made.headers["x-request-id"], "req"), f"my {SECRET}")
        assert comments(tenant) == [f"my {SECRET}"]
        deleted = await client.delete(f"/v1/responses/{made.json()['id']}")
    assert (deleted.status_code, comments(tenant)) == (OK, [""])
