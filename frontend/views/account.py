"""Sign-in, sign-out, the one-time link that sets a password, and the choice of organization."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import LoginView, LogoutView
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.tenants.accounts import BadSetupLink, setup_link_consume, setup_link_user
from controlplane.tenants.models import User
from frontend.access import choose_organization

PASSWORD_CHARS_MAX = 1_024
# Axes decides before a sign-in which backend may answer; after a spent link this one vouches.
BACKEND = "django.contrib.auth.backends.ModelBackend"

sign_in = require_http_methods(["GET", "POST"])(
    LoginView.as_view(
        template_name="pages/sign_in.html", redirect_authenticated_user=True, next_page="overview"
    )
)
sign_out = LogoutView.as_view(next_page=reverse_lazy("sign_in"))


class PasswordForm(forms.Form):
    """A new password, typed twice."""

    password = forms.CharField(
        label="New password",
        max_length=PASSWORD_CHARS_MAX,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password", "autofocus": True}),
    )
    again = forms.CharField(
        label="The same again",
        max_length=PASSWORD_CHARS_MAX,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def clean_again(self) -> str:
        """A typing error must not lock the account's owner out."""
        again: str = self.cleaned_data["again"]
        if again != self.cleaned_data.get("password", again):
            raise ValidationError("The two passwords differ.")
        return again


@never_cache
@sensitive_post_parameters()
@sensitive_variables()
@require_http_methods(["GET", "POST"])
def setup(request: HttpRequest, token: str) -> HttpResponse:
    """Set the password of the account a link belongs to, and sign in."""
    account = setup_link_user(token=token)
    if account is None:
        return _spent(request)
    form = PasswordForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            user = setup_link_consume(token=token, password=form.cleaned_data["password"])
        except BadSetupLink:
            return _spent(request)
        except ValidationError as error:
            form.add_error(None, error)
        else:
            login(request, user, backend=BACKEND)
            messages.success(request, "Your password is set. The link no longer works.")
            return redirect("overview")
    # The address is the secret; the site-wide Referrer-Policy keeps it from all other sites.
    return render(request, "pages/setup.html", {"form": form, "account": account})


def _spent(request: HttpRequest) -> HttpResponse:
    context = {
        "title": "This link does not work any more",
        "text": "It was used already, it is older than a day, or it was copied incompletely. "
        "Ask an administrator for a new one.",
        "link": reverse_lazy("sign_in"),
        "link_text": "Go to sign-in",
    }
    return render(request, "pages/notice.html", context, status=410)


@login_required
@require_POST
def organization_choose(request: HttpRequest) -> HttpResponse:
    """Show another of the user's organizations."""
    if not isinstance(request.user, User):
        raise PermissionDenied
    choose_organization(request, request.user, request.POST.get("organization", ""))
    return redirect("overview")
