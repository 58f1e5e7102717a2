"""Sign-in in one step or two, sign-out, the one-time link, the choice of organization."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.tenants.models import User
from controlplane.tenants.sign_in.accounts import BadSetupLink, setup_link_consume, setup_link_user
from controlplane.tenants.sign_in.sessions import session_signed_out
from frontend.people.passkeys import factor_kinds, factor_shown
from frontend.people.signing import first_shown, pending_user, session_begin
from frontend.shared.access import choose_organization

PASSWORD_CHARS_MAX = 1_024


class SignIn(LoginView):
    """E-mail address and password; whoever has a second factor is asked for it next."""

    template_name = "people/sign_in.html"
    redirect_authenticated_user = True
    next_page = "overview"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The form, and where else one may sign in."""
        mails = bool(settings.EMAIL_HOST)
        return super().get_context_data(provider=settings.OIDC_NAME, mails=mails, **kwargs)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        user = form.get_user()
        if not isinstance(user, User):
            raise PermissionDenied
        return first_shown(self.request, user, self.get_redirect_url())


class SignOut(LogoutView):
    """The session ends, and nobody sees it in their list any more."""

    next_page = "sign_in"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.session.session_key is not None:
            session_signed_out(session_key=request.session.session_key)
        return super().post(request, *args, **kwargs)


# Asked before the view, which redirects whoever is signed in by any method.
sign_in = require_http_methods(["GET", "HEAD", "POST"])(SignIn.as_view())
sign_out = SignOut.as_view()


class PasswordForm(forms.Form):
    password = forms.CharField(
        label="New password",
        max_length=PASSWORD_CHARS_MAX,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password", "autofocus": True}),
    )
    again = forms.CharField(
        label="Confirm password",
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
def second_factor(request: HttpRequest) -> HttpResponse:
    pending = pending_user(request)
    if pending is None:
        messages.info(request, "The sign-in timed out. Start over.")
        return redirect("sign_in")
    user, next_path = pending
    failed = request.method == "POST" and not factor_shown(request, user)
    if request.method == "POST" and not failed:
        return session_begin(request, user, next_path)
    context = {"kinds": factor_kinds(user), "failed": failed}
    return render(request, "people/second_factor.html", context, status=422 if failed else 200)


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
            messages.success(request, "Your password is set. The link no longer works.")
            return first_shown(request, user)
    # The address is the secret; the site-wide Referrer-Policy keeps it from all other sites.
    return render(request, "people/setup.html", {"form": form, "account": account})


def _spent(request: HttpRequest) -> HttpResponse:
    context = {
        "title": "This link is no longer valid",
        "text": "It was already used, has expired, or was copied incompletely. Request a new one.",
        "link": reverse_lazy("sign_in"),
        "link_text": "Go to sign-in",
    }
    return render(request, "shared/notice.html", context, status=410)


@login_required
@require_POST
def organization_choose(request: HttpRequest) -> HttpResponse:
    if not isinstance(request.user, User):
        raise PermissionDenied
    choose_organization(request, request.user, request.POST.get("organization", ""))
    return redirect("overview")
