"""What a few letters or an id lead to: pages, a request, and what has a name."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple
from urllib.parse import urlencode

from django.core.exceptions import ObjectDoesNotExist
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_vary_headers

from controlplane.catalog.selectors import model_list
from controlplane.core.permissions import Action
from controlplane.fleet.selectors import nodes_named
from controlplane.insights.saved import view_list
from controlplane.kernel.ids import REQUEST, public_id, uuid_of
from controlplane.telemetry.selectors_requests import request_get
from controlplane.tenants.people.selectors import member_list
from controlplane.tenants.selectors import apikeys_named, organization_ids
from frontend.shared.access import Viewer, page, show

QUERY_CHARS_MAX = 200
# Of each kind; what is sought for further is on the page of its kind.
FOUND_MAX = 6


class Found(NamedTuple):
    """A place: the kind of thing, its name, its address, and what tells it from others."""

    kind: str
    name: str
    address: str
    detail: str = ""


@page("find", None, "GET")
def find(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """A page of results, for htmx the results alone; a request's id leads to its page at once."""
    query = request.GET.get("q", "").strip()[:QUERY_CHARS_MAX]
    found = list(_found(viewer, query))
    whole = "HX-Request" not in request.headers
    if whole and len(found) == 1 and found[0].kind == "Request":
        return redirect(found[0].address)
    context = {"query": query, "found": found}
    if whole:
        return show(request, viewer, "find", "finding/find.html", context)
    answer = render(request, "finding/found.html", context)
    patch_vary_headers(answer, ["HX-Request"])
    return answer


def _found(viewer: Viewer, query: str) -> Iterator[Found]:
    """The request with this id, else each kind that the viewer's role may see."""
    if (request := _request(viewer, query)) is not None:
        yield request
        return
    for title, entries in viewer.navigation:
        for entry in entries:
            if _in(query, entry.label):
                yield Found("Page", entry.label, reverse(entry.name), title)
    if not query:
        return
    for action, search in NAMED if viewer.chosen else ():
        if viewer.may(action):
            yield from islice(search(viewer, query), FOUND_MAX)
    if viewer.sees_fleet:
        for node in nodes_named(user=viewer.user, text=query, rows_max=FOUND_MAX):
            named = urlencode({"node": node.name})
            place = f"{reverse('fleet')}?{named}#pool-title-{node.pool}"
            yield Found("Node", node.name, place, f"pool {node.pool}")


def _request(viewer: Viewer, query: str) -> Found | None:
    """Of any organization the user may look into; its detail names another than the one shown."""
    seen = organization_ids(user=viewer.user, action=Action.REQUEST_VIEW)
    try:
        record = request_get(seen, uuid_of(query, REQUEST))
    except (ValueError, ObjectDoesNotExist):
        return None
    shown = viewer.chosen is not None and record.organization == viewer.chosen.id
    names = {one.id: one.name for one in viewer.organizations}
    detail = "" if shown else names.get(record.organization, "")
    name = public_id(REQUEST, record.request)
    return Found("Request", name, reverse("request", args=[record.request]), detail)


def _in(query: str, name: str) -> bool:
    return query.casefold() in name.casefold()


def _keys(viewer: Viewer, query: str) -> Iterator[Found]:
    keys = apikeys_named(
        user=viewer.user, organization_id=viewer.organization.id, text=query, rows_max=FOUND_MAX
    )
    for key in keys:
        detail = key.redacted + (", revoked" if key.revoked_at else "")
        yield Found("Key", key.label, reverse("key", args=[key.id]), detail)


def _models(viewer: Viewer, query: str) -> Iterator[Found]:
    for model in model_list():
        if _in(query, model.name):
            off = "" if model.enabled else "disabled"
            yield Found("Model", model.name, reverse("model", args=[model.name]), off)


def _projects(viewer: Viewer, query: str) -> Iterator[Found]:
    for project in viewer.projects():
        if _in(query, project.name):
            wanted = urlencode({"project": public_id("proj", project.id)})
            yield Found("Project", project.name, f"{reverse('requests')}?{wanted}", "its requests")


def _members(viewer: Viewer, query: str) -> Iterator[Found]:
    for each in member_list(actor=viewer.user, organization_id=viewer.organization.id):
        if _in(query, each.membership.user.email):
            role = each.membership.get_role_display()
            yield Found("Member", each.membership.user.email, reverse("members"), role)


def _views(viewer: Viewer, query: str) -> Iterator[Found]:
    for view in view_list(actor=viewer.user, organization_id=viewer.organization.id):
        if _in(query, view.name):
            yield Found("View", view.name, f"{reverse('explore')}?{view.query}", "in Explore")


# The right that each needs, and what looks for it in the organization shown.
NAMED: tuple[tuple[Action, Callable[[Viewer, str], Iterator[Found]]], ...] = (
    (Action.KEY_VIEW, _keys),
    (Action.CATALOG_VIEW, _models),
    (Action.REQUEST_VIEW, _projects),
    (Action.REQUEST_VIEW, _views),
    (Action.MEMBER_VIEW, _members),
)
