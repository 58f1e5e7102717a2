"""Who looks at a page: the user, the organization shown, and what the role there allows.

The one door of every page: views never check rights by hand.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render, resolve_url
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_http_methods

from controlplane.core.audit.entries import Whose
from controlplane.core.permissions import MATRIX, PLATFORM_ACTIONS, Action, Role
from controlplane.kernel.ids import uuid_asked
from controlplane.tenants.access import sees_shared_figures
from controlplane.tenants.models import Organization, Project, User
from controlplane.tenants.selectors import organization_list, organizations_held, project_list
from frontend.shared.navigation import NAVIGATION, Entries

SESSION_KEY = "organization"
# What a form of a page says of the organization it was shown for; `pages.js` adds it.
SHOWN_FIELD = "organization_shown"
SHOWN_HEADER = "X-Organization-Shown"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
PLACE_COLORS = 6
LEFT = "You are no longer a member of the selected organization."


class NoOrganization(Exception):
    """The user is in no organization, and this page shows one."""

    # Templates that merely ask whether there is one get nothing.
    silent_variable_failure = True


def _right(action: Action) -> property:
    """Of a viewer: whether they may do it."""
    return property(lambda viewer: viewer.may(action))


@dataclass(frozen=True)
class Viewer:
    """A signed-in user, in one organization if they are in any; staff need be in none."""

    user: User
    chosen: Organization | None
    organizations: list[Organization] = field(repr=False)
    actions: frozenset[Action]
    # Whether the organization shown asks for a second factor that they have not.
    lacks_factor: bool = False

    @property
    def organization(self) -> Organization:
        """The organization shown; raises NoOrganization, for which `page` has an answer."""
        if self.chosen is None:
            raise NoOrganization
        return self.chosen

    @property
    def whose(self) -> Whose:
        """They, and the organization shown."""
        return {"actor": self.user, "organization_id": self.organization.id}

    def may(self, action: Action) -> bool:
        return action in self.actions

    @property
    def sees_shared(self) -> bool:
        """Whether figures of all tenants are shown to them."""
        return sees_shared_figures(self.user)

    @property
    def place_color(self) -> int:
        """Of the colours that tell organizations apart, the one of the organization shown."""
        return self.organization.id.int % PLACE_COLORS

    @property
    def navigation(self) -> list[tuple[str, Entries]]:
        """Links that lead somewhere for this role; a group of none is left out."""
        shared = (False, True) if self.sees_shared else (False,)
        allowed = {
            title: tuple(one for one in entries if self.may(one.action) and one.shared in shared)
            for title, entries in NAVIGATION.items()
        }
        return [group for group in allowed.items() if group[1]]

    def projects(self) -> list[Project]:
        rows = project_list(user=self.user)
        return [one for one in rows if one.organization_id == self.organization.id]

    # Whether ledger lines are shown; a developer sees a request's cost, not the books.
    sees_money = _right(Action.LEDGER_VIEW)
    # Whether nodes are told to them; tenants see pools alone.
    sees_fleet = _right(Action.FLEET_VIEW)
    makes_keys, revokes_keys = _right(Action.KEY_CREATE), _right(Action.KEY_REVOKE)
    plays = _right(Action.PLAYGROUND_USE)


P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, Viewer, P], HttpResponseBase]
# What `page` has found by address, and the names of addresses.
PAGES: dict[str, Callable[..., HttpResponseBase]] = {}
NAMES: dict[str, str] = {}


def find_viewer(user: User, wanted: str | None) -> Viewer:
    """The viewer in the wanted organization, else in the one they joined first, else in none.

    So a new membership never changes where a sign-in leads.
    """
    held = organizations_held(user=user)
    first = min(held, key=lambda each: each[1].since, default=(None, None))
    chosen, rights = next((each for each in held if str(each[0].id) == wanted), first)
    lacks_factor = rights is not None and rights.lacks_factor
    actions = frozenset() if rights is None or lacks_factor else MATRIX[rights.role]
    if user.is_staff:
        actions |= PLATFORM_ACTIONS | {Action.CATALOG_VIEW}
    return Viewer(user, chosen, [each for each, _ in held], actions, lacks_factor)


def page(
    address: str, action: Action | None, *methods: str, name: str = "", shared: bool = False
) -> Callable[[View[P]], View[P]]:
    """A page for signed-in members whose role allows `action`; to strangers it does not exist.

    Links name it as its view, or by `name`. None is for what everybody may do about themselves.
    Other `methods` get 405. `shared`: it shows figures of all tenants.
    """

    def wrap(allowed: View[P]) -> View[P]:
        view = require_http_methods(methods)(allowed)

        @login_required
        @cache_control(private=True, no_cache=True)
        @wraps(view)
        def door(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            user = request.user
            if not isinstance(user, User):
                raise PermissionDenied
            viewer = find_viewer(user, request.session.get(SESSION_KEY))
            moved = _stay(request, viewer)
            if moved is not None:
                return moved
            try:
                if action is None or (viewer.may(action) and (viewer.sees_shared or not shared)):
                    return view(request, viewer, *args, **kwargs)
            except NoOrganization:
                return _no_organization(request, viewer)
            except ObjectDoesNotExist as error:
                raise Http404 from error
            if viewer.chosen is None:
                return _no_organization(request, viewer)
            if viewer.lacks_factor:
                return redirect("account")
            return _not_allowed(request, viewer, action)

        PAGES[address], NAMES[address] = door, name or allowed.__name__
        return allowed

    return wrap


def show(
    request: HttpRequest,
    viewer: Viewer,
    here: str,
    template: str,
    context: dict[str, Any],
    wrong: object = None,
) -> HttpResponse:
    """The page below its entry `here` of the navigation; 422 where something typed is `wrong`."""
    whole = {"viewer": viewer, "here": here, **context}
    return render(request, template, whole, status=422 if wrong else 200)


def moving(
    request: HttpRequest,
    part: str,
    now: Callable[[], dict[str, Any]],
    whole: Callable[[], HttpResponse],
) -> HttpResponse:
    """A page of which htmx asks for the template `part` again and again, with what is so now."""
    again = "HX-Request" in request.headers
    answer = render(request, part, now()) if again else whole()
    patch_vary_headers(answer, ["HX-Request"])
    return answer


def notice(
    request: HttpRequest,
    title: str,
    text: str,
    *,
    status: int,
    link: tuple[str, str] = ("sign_in", "Go to sign-in"),
) -> HttpResponse:
    """A page that says one thing, with a link: where it leads, and its words."""
    context = {"title": title, "text": text, "link": resolve_url(link[0]), "link_text": link[1]}
    return render(request, "shared/notice.html", context, status=status)


def _stay(request: HttpRequest, viewer: Viewer) -> HttpResponse | None:
    """Keep the session in its organization; the answer where a form was meant for another.

    The first page of a session decides, so that a new membership never changes what is shown. A
    form is refused when its page showed an organization that another tab has left since.
    """
    now = str(viewer.chosen.id) if viewer.chosen else ""
    before = request.session.get(SESSION_KEY, "")
    if now != before:
        request.session[SESSION_KEY] = now
    reads = request.method in SAFE_METHODS
    if before and now != before and reads:
        messages.warning(request, f"{LEFT} {_showing(viewer)}")
    shown = request.headers.get(SHOWN_HEADER) or request.POST.get(SHOWN_FIELD) or before
    if reads or not shown or shown == now:
        return None
    text = f"That page showed another organization. {_showing(viewer)}"
    return notice(request, "Nothing was changed", text, status=409, link=("/", "Continue"))


def _showing(viewer: Viewer) -> str:
    return (
        f"You are now in {viewer.chosen.name}." if viewer.chosen else "No organization is selected."
    )


def _not_allowed(request: HttpRequest, viewer: Viewer, action: Action | None) -> HttpResponse:
    """The page's place in the frame, with the roles that open it: none where it is for staff."""
    opens = frozenset() if action is None or viewer.may(action) else action.roles
    *others, last = ["", *(role.value for role in Role if role in opens)]
    told = " or ".join(filter(None, (", ".join(filter(None, others)), last)))
    context = {"viewer": viewer, "roles": told}
    return render(request, "shared/not_allowed.html", context, status=403)


def _no_organization(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    if request.path == "/" and viewer.navigation:
        (_, entries), *_ = viewer.navigation
        return redirect(entries[0].name)
    return render(request, "shared/no_organization.html", {"viewer": viewer}, status=403)


def choose_organization(request: HttpRequest, user: User, text: str) -> None:
    """Remember which organization to show; raises Http404 for one the user is not in."""
    wanted = uuid_asked(text, "org", Http404())
    if wanted not in {one.id for one in organization_list(user=user)}:
        raise Http404
    request.session[SESSION_KEY] = str(wanted)
