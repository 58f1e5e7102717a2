"""Values beyond every bound, field by field: an answer that says what is wrong, never a 500.

Each write operation of the API's description is sent a body that it takes, with one field at a time
too long or too large for the column that would keep it. So are documents in bodies, and the forms
of pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin

import pytest
import yaml
from django.conf import settings
from django.db import transaction
from django.test import Client

from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.services import TokenDraft, token_create
from controlplane.slos.models import EVERYONE
from controlplane.slos.services import objective_create
from tests.core.callers import STAFF
from tests.core.extremes import EMAIL, Form, Forms, Shapes, beyond_document, changed
from tests.core.route import Route
from tests.core.routes import ROUTES
from tests.core.samples import MODEL, Things, make_things
from tests.core.test_authorization_matrix import PARAMETER, address, filled
from tests.support.objectives import draft
from tests.support.servers import Servers, drop_database, make_database

JSON = "application/json"
TAKEN_MIN, NAMED_MIN, FORM_FIELDS_MIN = 44, 8, 75
NAMED = {("email", EMAIL), ("shift_version", 2**31)}
# Stands for the secret of a token that is made for the call.
ENROLMENT = "enrolment"
# Forms that differ by the thing alone are one.
ANY_ID = re.compile(r"\b(?:[a-z]+_)?[0-9a-f]{32}\b|\bs\d_\w+")
# What an operation takes beside its example and the line of the matrix.
ALSO: Mapping[str, Mapping[str, Any]] = {
    "/api/organizations/{organization_id}/keys": {"project": "{project}"},
    "/api/slos/organizations/{organization_id}/objectives": {"threshold": 0},
    "/api/slos/organizations/{organization_id}/objectives/{objective_id}": {"threshold": 0},
    "/api/billing/organizations/{organization_id}/requests/{charge_id}/reversals": {"nano": 1},
    "/api/routing/versions/{version}": {"rules": [], "revision": 1},
    "/api/fleet/enrol": {"token": ENROLMENT, "name": "node-9", "pool": "default"},
}


@pytest.fixture(scope="module")
def things(servers: Servers) -> Iterator[Things]:
    """One installation for all fields: each call is rolled back."""
    make_database(servers.postgres)
    yield make_things()
    drop_database(servers.postgres)


@pytest.fixture
def operator() -> Client:
    token = f"Bearer {settings.OPERATOR_TOKEN}"
    return Client(raise_request_exception=False, HTTP_AUTHORIZATION=token)


def sent(client: Client, method: str, url: str, body: Any) -> Any:
    """The answer to a call of which nothing stays."""
    with transaction.atomic():
        answer = getattr(client, method)(url, body, content_type=JSON)
        transaction.set_rollback(True)
    return answer


def body_of(route: Route, told: Mapping[str, Any], things: Things, least: Any) -> Any:
    """A body that the operation takes: of its example, the matrix' line and what else it needs."""
    example: Mapping[str, Any] = next(
        (one["value"] for one in told.get("examples", {}).values()), {}
    )
    also = ALSO.get("/" + PARAMETER.sub(r"{\1}", route.path), {})
    own = {**example, **route.body, **also}
    if own.get("token") == ENROLMENT:
        token = token_create(actor=OPERATOR, draft=TokenDraft(pool="default")).secret
        return {**own, "token": token}
    return {name: filled(value, things) for name, value in own.items()} or least


def test_no_field_of_a_body_ends_in_a_500(things: Things, operator: Client) -> None:
    description = operator.get("/api/schema").json()
    shapes, failed, named, taken = Shapes(description), [], [], 0
    for route in ROUTES:
        path, method = "/" + PARAMETER.sub(r"{\1}", route.path), route.method.lower()
        told = description["paths"].get(path, {}).get(method, {}).get("requestBody")
        if told is None:
            continue
        schema = told["content"][JSON]["schema"]
        body = body_of(route, told["content"][JSON], things, shapes.least(schema))
        taken += sent(operator, method, address(route, things), body).status_code < 400
        for at, value in shapes.beyond(schema):
            wrong = shapes.put(schema, body, at, value)
            for url in addresses(route, things):
                answer = sent(operator, method, url, wrong)
                if answer.status_code >= 500:
                    failed.append((method, path, at, str(value)[:20]))
                if (at[-1], value) in NAMED:
                    named.append((path, answer.status_code, *answer.json()["error"]["fields"]))
    assert failed == []
    # Of bodies that nothing is wrong with but the one field, or no field would be looked at.
    assert taken >= TAKEN_MIN
    assert {(status, field) for _, status, *fields in named for field in fields} == {
        (400, "email"),
        (400, "shift_version"),
        # An objective of a tenant's may act on nothing at all.
        (400, "actions"),
    }
    assert len(named) >= NAMED_MIN


def addresses(route: Route, things: Things) -> set[str]:
    """Of a tenant, and of the installation where it has such things itself."""
    url = address(route, things)
    both = route.path.startswith("api/slos/organizations/") and route.method == "POST"
    return {url, url.replace(str(things.cast.acme.id), str(EVERYONE))} if both else {url}


def test_no_value_of_a_document_ends_in_a_500(things: Things, operator: Client) -> None:
    objective = draft(shift_version=1, email="a@example.org", model=MODEL, route="first")
    with transaction.atomic():
        objective_create(actor=OPERATOR, organization=EVERYONE, draft=objective)
        openslo = f"/api/slos/organizations/{EVERYONE}/openslo"
        objectives = yaml.safe_load(operator.get(openslo).json()["yaml"])
        transaction.set_rollback(True)
    configuration = yaml.safe_load(operator.get("/api/blueprint").json()["text"])
    documents = [
        (openslo, "yaml", objectives),
        ("/api/blueprint/apply", "text", configuration),
        ("/api/routing/versions", "rules", configuration["routing"]["rules"]),
    ]
    for url, field, document in documents:
        taken = written(operator, url, field, document)
        assert taken.status_code < 300, taken.content
        failed = [
            (url, at, str(value)[:20])
            for at, value in beyond_document(document)
            if written(operator, url, field, changed(document, at, value)).status_code >= 500
        ]
        assert failed == []


def written(client: Client, url: str, field: str, document: Any) -> Any:
    """The answer to a document, which is YAML unless it is the rules'."""
    body = document if field == "rules" else yaml.safe_dump(document)
    return sent(client, "post", url, {field: body})


def test_no_field_of_a_form_ends_in_a_500(things: Things) -> None:
    seen: set[tuple[str, str]] = set()
    failed = []
    for name in ("owner", STAFF):
        client = things.callers.client(name)
        for form in forms(client, things):
            kind = ANY_ID.sub("", form.address)
            for field, value in form.beyond.items():
                if (kind, field) in seen:
                    continue
                seen.add((kind, field))
                with transaction.atomic():
                    answer = client.post(form.address, {**form.fields, field: value})
                    transaction.set_rollback(True)
                if answer.status_code >= 500:
                    failed.append((kind, field))
    assert failed == []
    assert len(seen) >= FORM_FIELDS_MIN


def forms(client: Client, things: Things) -> Iterator[Form]:
    """Those that change something, of every page that this caller may look at."""
    for route in ROUTES:
        if route.method != "GET" or route.path.startswith(("api/", "v1/")) or "." in route.path:
            continue
        url = address(route, things)
        answer = client.get(url)
        if answer.status_code == 200 and "html" in answer.headers["Content-Type"]:
            for form in Forms(answer.content.decode()).found:
                if form.method == "POST":
                    yield replace(form, address=urljoin(url, form.address or url))
