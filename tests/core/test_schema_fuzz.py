"""Requests made from the API's own description: none ends in a 500, answers are as described."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.conf import settings as django_settings
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import response_schema_conformance

from controlplane.tenants.adminkeys.models import KEY_ACTIONS
from controlplane.tenants.adminkeys.services import AdminKeyDraft, adminkey_create
from tests.core.samples import SAMPLES, Things, make_things
from tests.support.servers import Servers, drop_database, make_database

# Some minutes where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

EXAMPLES = 5
OPERATIONS_MIN = 60
CHECKS = [not_a_server_error, response_schema_conformance]
BOUNDED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    # The same requests at every run: what it finds today it finds again.
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
PARAMETER = re.compile(r"([^/]+)/\{(\w+)\}")


@pytest.fixture(scope="module")
def things(servers: Servers) -> Iterator[Things]:
    """What paths may name; changes stay, as they would. One connection serves all requests."""
    make_database(servers.postgres)
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield make_things()
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)
    drop_database(servers.postgres)


def known(path: str, things: Things) -> dict[str, str]:
    """Values of a path's parameters that exist."""
    found = {}
    for segment, name in PARAMETER.findall(path):
        sample = SAMPLES.get(f"{segment}/{name}") or SAMPLES.get(name)
        if sample is not None:
            found[name] = str(sample.said(things))
    return found


def callers(things: Things) -> list[str]:
    """Bearer tokens: the operator's, and of an admin key that may do all that keys may."""
    draft = AdminKeyDraft("fuzz", [action.value for action in KEY_ACTIONS])
    cast = things.cast
    made = adminkey_create(actor=cast.alice, organization_id=cast.acme.id, draft=draft)
    return [django_settings.OPERATOR_TOKEN, made.secret]


def test_no_request_ends_in_a_500(things: Things) -> None:
    operator, admin = callers(things)
    schema = schemathesis.openapi.from_wsgi(
        "/api/schema", WSGIHandler(), headers={"Authorization": f"Bearer {operator}"}
    )
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    assert len(operations) >= OPERATIONS_MIN
    for operation in operations:
        ask(operation, known(operation.path, things), (operator, admin))


def ask(operation: Any, real: dict[str, str], tokens: tuple[str, ...]) -> None:
    """A few requests to one operation, of things that exist and of others."""

    @BOUNDED
    @given(case=operation.as_strategy(), token=st.sampled_from(tokens), exists=st.booleans())
    def one(case: Any, token: str, exists: bool) -> None:
        if exists:
            case.path_parameters = {**(case.path_parameters or {}), **real}
        case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, checks=CHECKS)

    one()
