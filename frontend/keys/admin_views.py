"""Admin keys: for programs that administer the organization; made after confirming, shown once."""

import uuid

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from controlplane.core.jobs.once import AlreadyCreated
from controlplane.core.paging import LIMIT_MAX, PageAsk
from controlplane.core.permissions import Action
from controlplane.tenants.adminkeys.models import KEY_ACTIONS, LABEL_CHARS_MAX
from controlplane.tenants.adminkeys.services import (
    LIFETIME_DAYS_DEFAULT,
    LIFETIME_DAYS_MAX,
    AdminKeyDraft,
    adminkey_create,
    adminkey_get,
    adminkey_list,
    adminkey_revoke,
)
from frontend.shared.access import Viewer, page, show
from frontend.shared.addresses import page_url
from frontend.shared.stepup import stepped_up

HERE = "admin_keys"
NEVER = ""
LIFETIMES = (
    ("30", "30 days"),
    (str(LIFETIME_DAYS_DEFAULT), "90 days"),
    (str(LIFETIME_DAYS_MAX), "1 year"),
    (NEVER, "Never"),
)
TONES = {"active": "ok", "expired": "warn"}


class AdminKeyForm(forms.Form):
    """A new key, once for each form; offers what the viewer's own role allows."""

    form_id = forms.UUIDField()
    label = forms.CharField(max_length=LABEL_CHARS_MAX)
    lifetime = forms.ChoiceField(
        choices=LIFETIMES, required=False, initial=str(LIFETIME_DAYS_DEFAULT)
    )

    def __init__(self, viewer: Viewer, data: object = None) -> None:
        super().__init__(data)  # type: ignore[arg-type]
        # What every key may, the form does not ask.
        offered = sorted((KEY_ACTIONS & viewer.actions) - {Action.ORGANIZATION_VIEW})
        choices = [(one.value, one.value.replace(".", " ").replace("_", " ")) for one in offered]
        self.fields["actions"] = forms.MultipleChoiceField(choices=choices)


def _index(
    request: HttpRequest, viewer: Viewer, form: AdminKeyForm, *, secret: str = ""
) -> HttpResponse:
    now, organization = timezone.now(), viewer.organization.id
    found = adminkey_list(
        actor=viewer.user, organization_id=organization, ask=PageAsk(limit=LIMIT_MAX)
    )
    states = [(key, key.state(now)) for key in found.rows]
    context = {
        "rows": [(key, state, TONES.get(state, "off")) for key, state in states],
        "cut_off": found.has_more,
        "rows_max": LIMIT_MAX,
        "form": form,
        "form_id": uuid.uuid4().hex,
        "secret": secret,
        "base": page_url(request),
    }
    return show(request, viewer, HERE, "keys/admin.html", context, form.errors)


@page(Action.ADMIN_KEY_MANAGE)
@require_GET
def admin_key_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    return _index(request, viewer, AdminKeyForm(viewer))


@never_cache
@page(Action.ADMIN_KEY_MANAGE)
@stepped_up
@sensitive_variables()
@require_http_methods(["GET", "POST"])
def admin_key_create(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Make a key and show its secret in this one answer, which nothing stores."""
    if request.method == "GET":
        return redirect(HERE)
    form = AdminKeyForm(viewer, request.POST)
    if not form.is_valid():
        return _index(request, viewer, form)
    wanted = form.cleaned_data
    days = int(wanted["lifetime"]) if wanted["lifetime"] != NEVER else None
    try:
        made = adminkey_create(
            actor=viewer.user,
            organization_id=viewer.organization.id,
            draft=AdminKeyDraft(wanted["label"], wanted["actions"], days, wanted["form_id"]),
        )
    except AlreadyCreated:
        messages.info(request, "This key was already created; its secret is not shown again.")
        return redirect(HERE)
    except ValidationError as error:
        form.add_error(None, error)
        return _index(request, viewer, form)
    return _index(request, viewer, AdminKeyForm(viewer), secret=made.secret)


@page(Action.ADMIN_KEY_MANAGE)
@require_POST
def admin_key_revoke(request: HttpRequest, viewer: Viewer, key_id: uuid.UUID) -> HttpResponse:
    key = adminkey_get(actor=viewer.user, organization_id=viewer.organization.id, key_id=key_id)
    if adminkey_revoke(actor=viewer.user, key=key):
        messages.success(request, f"Admin key “{key.label}” no longer works.")
    else:
        messages.info(request, f"Admin key “{key.label}” was already revoked.")
    return redirect(HERE)
