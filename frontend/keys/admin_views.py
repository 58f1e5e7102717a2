"""Admin keys: for programs that administer the organization; made after confirming, shown once."""

import uuid

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from controlplane.core.answers import LIMIT_MAX, PageAsk
from controlplane.core.permissions import Action
from controlplane.tenants.adminkeys import services as adminkeys
from controlplane.tenants.adminkeys.models import KEY_ACTIONS, LABEL_CHARS_MAX
from frontend.shared.access import Viewer, page, show
from frontend.shared.addresses import page_url
from frontend.shared.forms import made_by, says_wrong
from frontend.shared.stepup import secret_page

HERE = "admin_keys"
NEVER = ""
LIFETIMES = (
    ("30", "30 days"),
    (str(adminkeys.LIFETIME_DAYS_DEFAULT), "90 days"),
    (str(adminkeys.LIFETIME_DAYS_MAX), "1 year"),
    (NEVER, "Never"),
)
TONES = {"active": "ok", "expired": "warn"}


class AdminKeyForm(forms.Form):
    """A new key, once for each form; offers what the viewer's own role allows."""

    form_id = forms.UUIDField()
    label = forms.CharField(max_length=LABEL_CHARS_MAX)
    lifetime = forms.ChoiceField(
        choices=LIFETIMES, required=False, initial=str(adminkeys.LIFETIME_DAYS_DEFAULT)
    )

    def __init__(self, viewer: Viewer, data: object = None) -> None:
        super().__init__(data)  # type: ignore[arg-type]
        # What every key may, the form does not ask.
        offered = sorted((KEY_ACTIONS & viewer.actions) - {Action.ORGANIZATION_VIEW})
        choices = [(one.value, one.value.replace(".", " ").replace("_", " ")) for one in offered]
        self.fields["actions"] = forms.MultipleChoiceField(choices=choices)

    def draft(self) -> adminkeys.AdminKeyDraft:
        """What a valid form asks for."""
        wanted = self.cleaned_data
        days = int(wanted["lifetime"]) if wanted["lifetime"] != NEVER else None
        return adminkeys.AdminKeyDraft(wanted["label"], wanted["actions"], days, wanted["form_id"])


def _index(
    request: HttpRequest, viewer: Viewer, /, form: AdminKeyForm | None = None, *, secret: str = ""
) -> HttpResponse:
    now, organization = timezone.now(), viewer.organization.id
    form = form or AdminKeyForm(viewer)
    found = adminkeys.adminkey_list(
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


page("admin-keys", Action.ADMIN_KEY_MANAGE, "GET", name=HERE)(_index)


@secret_page("admin-keys/create", Action.ADMIN_KEY_MANAGE, "GET", "POST")
@says_wrong(HERE)
def admin_key_create(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Make a key and show its secret in this one answer, which nothing stores."""
    if request.method == "GET":
        return redirect(HERE)
    form = AdminKeyForm(viewer, request.POST)
    made = made_by(form, lambda: adminkeys.adminkey_create(**viewer.whose, draft=form.draft()))
    if made is None:
        return _index(request, viewer, form)
    return _index(request, viewer, secret=made.secret)


@page("admin-keys/<adminkey:key_id>/revoke", Action.ADMIN_KEY_MANAGE, "POST")
def admin_key_revoke(request: HttpRequest, viewer: Viewer, key_id: uuid.UUID) -> HttpResponse:
    key = adminkeys.adminkey_get(**viewer.whose, key_id=key_id)
    if adminkeys.adminkey_revoke(actor=viewer.user, key=key):
        messages.success(request, f"Admin key “{key.label}” no longer works.")
    else:
        messages.info(request, f"Admin key “{key.label}” was already revoked.")
    return redirect(HERE)
