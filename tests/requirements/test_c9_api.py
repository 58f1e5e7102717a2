"""C9: what pages do, programs do. Admin keys, idempotent changes, and figures for existing tools.

OpenAI's own Python client reads usage, costs, projects and keys here, as it does there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.test import Client
from openai import AuthenticationError, BadRequestError, OpenAI

from controlplane.kernel.ids import public_id
from tests.support.month import END, START, Month, seal_month, seed_month
from tests.support.people import make_cast, signed_in

FROM, TO = int(START.timestamp()), int(END.timestamp())
ACTIONS = ["ledger.view", "request.view", "key.view", "audit.view"]


@pytest.fixture
def month(database: str) -> Month:
    """A month on the ledger, sealed."""
    found = seed_month(make_cast())
    seal_month()
    return found


def admin_keys(month: Month) -> str:
    """Where Acme's admin keys are."""
    return f"/api/organizations/{month.cast.acme.id}/admin-keys"


@pytest.fixture
def secret(month: Month) -> str:
    """An admin key that Alice has made, over the API."""
    body = {"label": "report", "actions": ACTIONS}
    made = signed_in(month.cast.alice).post(admin_keys(month), body, "application/json")
    assert made.status_code == 201
    return str(made.json()["secret"])


@pytest.fixture
def official(secret: str) -> Iterator[OpenAI]:
    """OpenAI's client with our base URL and an admin key."""
    transport = httpx2.WSGITransport(app=WSGIHandler())
    with (
        httpx2.Client(transport=transport) as http,
        OpenAI(
            base_url="http://localhost/v1",
            api_key="unused",
            admin_api_key=secret,
            http_client=http,
            max_retries=0,
        ) as client,
    ):
        yield client


def test_the_official_client_reads_costs_that_are_the_ledgers(
    month: Month, official: OpenAI
) -> None:
    total, page = 0, ""
    for _ in range(31):
        more = {"page": page} if page else {}
        told: Any = official.admin.organization.usage.costs(
            start_time=FROM, end_time=TO, limit=7, group_by=["line_item"], extra_query=more
        )
        for bucket in told.data:
            total += sum(round(one.amount.value * 10**9) for one in bucket.results)
        if not told.has_more:
            break
        page = told.next_page or ""
    assert total == month.charged(month.cast.acme.id) > 0


def test_the_official_client_reads_usage_projects_keys_and_changes(
    month: Month, official: OpenAI
) -> None:
    usage: Any = official.admin.organization.usage.completions(
        start_time=FROM, end_time=TO, limit=31, group_by=["model", "api_key_id"]
    )
    output = sum(one.output_tokens for bucket in usage.data for one in bucket.results)
    assert output == sum(line.counts.output for line in month.posted(month.cast.acme.id))
    # The client follows the cursor by itself.
    projects = list(official.admin.organization.projects.list(limit=1))
    assert public_id("proj", month.cast.project.id) in {project.id for project in projects}
    assert len(projects) == len(
        {one.project.id for one in month.payers} - {month.cast.other_project.id}
    )
    keys = list(
        official.admin.organization.projects.api_keys.list(public_id("proj", month.cast.project.id))
    )
    assert keys and all(key.redacted_value.startswith("sk_sluice_") for key in keys)
    logs = list(official.admin.organization.audit_logs.list(limit=100))
    assert "adminkey.create" in {one.type for one in logs}


def test_errors_are_classes_of_the_client_and_name_the_parameter(
    official: OpenAI, secret: str
) -> None:
    with pytest.raises(BadRequestError) as raised:
        official.admin.organization.usage.completions(start_time=FROM, bucket_width="1m")
    assert raised.value.param == "bucket_width"
    broken = official.copy(admin_api_key=secret[:-1])
    with pytest.raises(AuthenticationError):
        broken.admin.organization.projects.list()


def test_a_change_sent_twice_happens_once(month: Month, secret: str) -> None:
    alice = signed_in(month.cast.alice)
    body = {"label": "twice", "actions": ["key.view"]}
    once = {"Idempotency-Key": "7e1c"}
    first, again = (
        alice.post(admin_keys(month), body, "application/json", headers=once) for _ in range(2)
    )
    assert first.content == again.content and again["Idempotency-Replayed"] == "true"
    assert len(alice.get(admin_keys(month)).json()["data"]) == 2


def test_admin_keys_call_no_model_and_inference_keys_no_api(month: Month, secret: str) -> None:
    inference = Client(headers={"Authorization": "Bearer sk_sluice_x"}).get(admin_keys(month))
    assert inference.status_code == 401 and "inference key" in inference.content.decode()
    admin = Client(headers={"Authorization": f"Bearer {secret}"})
    assert admin.get(admin_keys(month)).status_code == 403
    assert admin.get("/api/routing/versions").status_code == 403
