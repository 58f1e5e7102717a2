"""Lines of the authorization matrix about what was said; `routes.py` says what they mean."""

from __future__ import annotations

from controlplane.core.permissions import Action
from tests.core.callers import OPERATOR, STAFF
from tests.core.route import Route

R = Route
ONE_PROJECT = "api/organizations/<org:organization_id>/projects/<proj:project_id>"
KEPT_PAGE = "conversations/<proj:project_id>"
KEPT = {"project": "{project}", "request": "{request_id}"}
# Of whom a project that nobody has changed lets owners alone read.
NO_BUILDERS = dict.fromkeys(("admin", "developer"), 403)
NO_MEMBERS = {**NO_BUILDERS, **dict.fromkeys(("finance", "viewer", STAFF), 403)}
NO_READERS = {**NO_MEMBERS, OPERATOR: 403}
KEEPING = {"keeps_days": 0, "content_readers": ["owner"]}

ROUTES: tuple[Route, ...] = (
    # What was said: owners alone read it, and who runs the installation is no reader.
    R("PUT", f"{ONE_PROJECT}/keeping", Action.CONTENT_MANAGE, KEEPING),
    R("GET", f"{ONE_PROJECT}/contents", Action.CONTENT_READ, but=NO_READERS),
    R(
        "POST",
        f"{ONE_PROJECT}/contents/replay",
        Action.CONTENT_READ,
        {"template": "support", "version": 1},
        but=NO_READERS,
    ),
    R(
        "POST",
        "templates/<str:name>/<int:version>/replay",
        Action.TEMPLATE_VIEW,
        {"project": "{project}"},
        but=NO_BUILDERS,
    ),
    R("DELETE", f"{ONE_PROJECT}/contents", Action.CONTENT_DELETE, query="end_user=nobody"),
    R("GET", f"{ONE_PROJECT}/contents/<req:request_id>", Action.CONTENT_READ, but=NO_READERS),
    R("DELETE", f"{ONE_PROJECT}/contents/<req:request_id>", Action.CONTENT_DELETE),
    R("POST", "projects/<proj:project_id>/keeping", Action.CONTENT_MANAGE, {"keeps_days": "0"}),
    R("GET", "conversations", Action.CONTENT_READ),
    R("GET", "conversations.jsonl", Action.CONTENT_READ),
    R("POST", f"{KEPT_PAGE}/forget", Action.CONTENT_DELETE, {"end_user": "nobody"}),
    R("POST", f"{KEPT_PAGE}/<req:request_id>", Action.CONTENT_READ, but=NO_MEMBERS),
    R("POST", f"{KEPT_PAGE}/<req:request_id>/delete", Action.CONTENT_DELETE),
    R("POST", "playground", Action.PLAYGROUND_USE, KEPT, but=NO_BUILDERS),
)
