"""Every operation of every route, called as everybody: who gets in is what `routes.py` declares."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.http.response import HttpResponseBase
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from controlplane.core.api.stepup import StepUpRequired
from controlplane.core.permissions import PLATFORM_ACTIONS
from controlplane.tenants.adminkeys.models import KEY_ACTIONS
from tests.core.callers import (
    ADMIN_KEY,
    ALL,
    OPERATOR,
    OTHER_OWNER,
    SESSIONS,
    TOKENS,
    member_may,
)
from tests.core.route import PUBLIC, Route
from tests.core.routes import ROUTES
from tests.core.samples import SAMPLES, Sample, Things, make_things
from tests.core.step_up import CONFIRMED, FREE, UNSAFE, is_change
from tests.support.servers import Servers, drop_database, make_database

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
API = ("api/", "v1/", "metrics")
PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")
DENIED = {401, 403, 404, 405}
# What a session opens; a public operation of the API reads no session.
FORMS = [
    route
    for route in ROUTES
    if route.method in UNSAFE and not (route.needs is PUBLIC and route.path.startswith(API))
]


@pytest.fixture(scope="module")
def things(servers: Servers) -> Iterator[Things]:
    """One installation for all routes: each call is rolled back."""
    make_database(servers.postgres)
    yield make_things()
    drop_database(servers.postgres)


def url_patterns(
    resolver: URLResolver | None = None, before: str = ""
) -> Iterator[tuple[str, Any]]:
    """(path, view) of each route that Django serves."""
    for entry in (resolver or get_resolver()).url_patterns:
        path = before + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from url_patterns(entry, path)
        elif isinstance(entry, URLPattern):
            yield path, entry.callback


def sample(place: str, name: str) -> Sample:
    """The sample for a parameter that follows this path."""
    segment = place.rstrip("/").rpartition("/")[2]
    found = SAMPLES.get(f"{segment}/{name}") or SAMPLES.get(name)
    assert found is not None, f"samples.py has none for {name!r} after {place!r}"
    return found


def named(route: Route) -> list[Sample]:
    """The samples that a route names in its path, query and body."""
    found = [sample(route.path[: one.start()], one[1]) for one in PARAMETER.finditer(route.path)]
    texts = [route.query, *(text for text in route.body.values() if isinstance(text, str))]
    return found + [SAMPLES[name] for text in texts for name in re.findall(r"\{(\w+)\}", text)]


def filled(text: Any, things: Things) -> Any:
    """A text with its samples in place."""
    if not isinstance(text, str):
        return text
    return re.sub(r"\{(\w+)\}", lambda one: str(SAMPLES[one[1]].said(things)), text)


def address(route: Route, things: Things) -> str:
    """Where the operation is asked for."""
    path = PARAMETER.sub(
        lambda one: str(sample(route.path[: one.start()], one[1]).said(things)), route.path
    )
    return f"/{path}" + (f"?{filled(route.query, things)}" if route.query else "")


def call(client: Client, route: Route, things: Things, method: str = "") -> HttpResponseBase:
    """The answer to one operation, or without a body to another method, of which nothing stays."""
    more: dict[str, Any] = {}
    if not method and route.body:
        more["data"] = {name: filled(value, things) for name, value in route.body.items()}
    if route.path.startswith(API):
        more["content_type"] = "application/json"
    ask = getattr(client, (method or route.method).lower())
    with transaction.atomic():
        answer: HttpResponseBase = ask(address(route, things), **more)
        if answer.streaming:
            b"".join(answer)
        transaction.set_rollback(True)
    return answer


def told(answer: HttpResponseBase) -> str:
    """`in`, `sign in`, or the status of a refusal."""
    status = answer.status_code
    if status == 302 and answer["Location"].startswith("/sign-in?next="):
        return "sign in"
    return str(status) if status in DENIED or status >= 500 else "in"


def expected(route: Route, caller: str) -> str:
    """What the table says this caller gets."""
    if caller in route.but:
        status = route.but[caller]
        return str(status) if status in DENIED else "in"
    api = route.path.startswith(API)
    outside = "401" if api else "sign in"
    if caller == OTHER_OWNER and any(one.tenant for one in named(route)):
        return "404"
    if isinstance(route.needs, frozenset):
        return "in" if caller in route.needs else outside
    if caller == OPERATOR and api:
        return "in"
    if caller == ADMIN_KEY and api:
        return "in" if route.needs in KEY_ACTIONS else "403"
    if caller == OTHER_OWNER:
        return "403" if route.needs in PLATFORM_ACTIONS else "in"
    if caller in SESSIONS:
        return "in" if member_may(caller, route.needs) else "403"
    return outside


def test_every_route_is_declared_and_every_line_is_a_route() -> None:
    known = dict(url_patterns())
    assert {route.path for route in ROUTES} == set(known)
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)


def test_every_operation_of_the_api_is_declared() -> None:
    declared = {(route.method, route.path) for route in ROUTES}
    served = {
        (method, path)
        for path, view in url_patterns()
        for method in METHODS
        if path.startswith(API) and hasattr(getattr(view, "view_class", None), method.lower())
    }
    assert served and served - declared == set()


@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_who_gets_in(things: Things, route: Route) -> None:
    found = {name: told(call(things.callers.client(name), route, things)) for name in ALL}
    wanted = {name: expected(route, name) for name in ALL}
    # What a member may not look at may as well not be there.
    hidden = {name for name in SESSIONS if (found[name], wanted[name]) == ("404", "403")}
    assert found == {**wanted, **dict.fromkeys(hidden, "404")}


@pytest.mark.parametrize("path", sorted({route.path for route in ROUTES}))
def test_other_methods_do_not_exist(things: Things, path: str) -> None:
    lines = {route.method: route for route in ROUTES if route.path == path}
    one = next(iter(lines.values()))
    # Whoever gets in with the declared method, if anybody does.
    callers = (name for name in (*SESSIONS, *TOKENS) if expected(one, name) == "in")
    caller = next(callers, SESSIONS[0])
    client = things.callers.client(caller)
    found = {name: told(call(client, one, things, name)) for name in METHODS if name not in lines}
    assert found == dict.fromkeys(found, "405")


@pytest.mark.parametrize("route", FORMS, ids=str)
def test_a_session_needs_the_token_of_its_forms(things: Things, route: Route) -> None:
    callers = (name for name in SESSIONS if expected(route, name) == "in")
    caller = next(callers, SESSIONS[0])
    assert told(call(things.callers.client(caller, csrf=True), route, things)) == "403"


def test_every_change_is_classed_by_whether_it_must_be_confirmed() -> None:
    changes = {str(route) for route in ROUTES if is_change(route)}
    assert not CONFIRMED & FREE
    assert changes == CONFIRMED | FREE


@pytest.mark.parametrize("route", [one for one in ROUTES if is_change(one)], ids=str)
def test_what_decides_money_secrets_or_prompts_is_confirmed(things: Things, route: Route) -> None:
    caller = next(name for name in SESSIONS if expected(route, name) in ("in", "404"))
    answer = call(things.callers.client(caller, confirmed=False), route, things)
    assert asks_to_confirm(answer) == (str(route) in CONFIRMED)


def asks_to_confirm(answer: HttpResponseBase) -> bool:
    """Whether it sends to the page that confirms, or names that code."""
    if answer.status_code == 302:
        return answer["Location"].startswith("/confirm?next=")
    content = getattr(answer, "content", b"")
    return answer.status_code == 403 and StepUpRequired.code.encode() in content
