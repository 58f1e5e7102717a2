"""Sign-in, sign-out, one-time links, lost passwords, the choice of organization."""

from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.request import split_domain_port
from django.shortcuts import redirect, render
from django.urls import Resolver404, resolve
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.core.audit.origin import client_address
from controlplane.core.counts import counts
from controlplane.core.mail import EMAIL_CHARS_MAX
from controlplane.kernel.keys.scopes import address_counted
from controlplane.tenants.models import User
from controlplane.tenants.sign_in import accounts
from controlplane.tenants.sign_in.recovery import password_link_ask
from controlplane.tenants.sign_in.sessions import session_signed_out
from frontend.people import signing
from frontend.shared.access import SESSION_KEY, choose_organization, find_viewer, notice
from frontend.shared.stepup import unseen

PASSWORD_CHARS_MAX = 1_024


class SignIn(LoginView):
    """E-mail address and password; whoever has a second factor is asked for it next."""

    template_name = "people/sign_in.html"
    redirect_authenticated_user = True
    next_page = "overview"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The form, and where else one may sign in."""
        mails = bool(settings.EMAIL_HOST)
        return super().get_context_data(providers=settings.OIDC_PROVIDERS, mails=mails, **kwargs)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        user = form.get_user()
        if not isinstance(user, User):
            raise PermissionDenied
        return signing.first_shown(self.request, user, self.get_redirect_url())


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


def password_field(label: str, autocomplete: str, *, autofocus: bool = False) -> forms.CharField:
    widget = forms.PasswordInput({"autocomplete": autocomplete, "autofocus": autofocus})
    return forms.CharField(label=label, max_length=PASSWORD_CHARS_MAX, strip=False, widget=widget)


class PasswordForm(forms.Form):
    password = password_field("New password", "new-password", autofocus=True)
    again = password_field("Confirm password", "new-password")

    def clean_again(self) -> str:
        """A typing error must not lock the account's owner out."""
        again: str = self.cleaned_data["again"]
        if again != self.cleaned_data.get("password", again):
            raise ValidationError("The two passwords differ.")
        return again


@unseen
@require_http_methods(["GET", "POST"])
def second_factor(request: HttpRequest) -> HttpResponse:
    pending = signing.pending_user(request)
    if pending is None:
        messages.info(request, "The sign-in timed out. Start over.")
        return redirect("sign_in")
    user, next_path = pending
    failed = request.method == "POST" and not signing.factor_shown(request, user)
    if request.method == "POST" and not failed:
        return signing.session_begin(request, user, next_path)
    context = {"kinds": signing.factor_kinds(user), "failed": failed}
    return render(request, "people/second_factor.html", context, status=422 if failed else 200)


@unseen
@require_http_methods(["GET", "POST"])
def setup(request: HttpRequest, token: str) -> HttpResponse:
    account = accounts.setup_link_user(token=token)
    if account is None:
        return _spent(request)
    form = PasswordForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            user = accounts.setup_link_consume(token=token, password=form.cleaned_data["password"])
        except accounts.BadSetupLink:
            return _spent(request)
        except ValidationError as error:
            form.add_error(None, error)
        else:
            messages.success(request, "Your password is set. The link no longer works.")
            return signing.first_shown(request, user)
    # The address is the secret; the site-wide Referrer-Policy keeps it from all other sites.
    return render(request, "people/setup.html", {"form": form, "account": account})


def _spent(request: HttpRequest) -> HttpResponse:
    text = "It was already used, has expired, or was copied incompletely. Request a new one."
    return notice(request, "This link is no longer valid", text, status=410)


@login_required
@require_POST
def organization_choose(request: HttpRequest) -> HttpResponse:
    if not isinstance(request.user, User):
        raise PermissionDenied
    choose_organization(request, request.user, request.POST.get("organization", ""))
    return redirect(_same_page(request, request.user))


def _same_page(request: HttpRequest, user: User) -> str:
    """The page that the choice was made on, where it is open in the organization chosen, too."""
    viewer = find_viewer(user, request.session[SESSION_KEY])
    try:
        name = resolve(urlsplit(request.headers.get("Referer", "")).path).url_name
    except Resolver404:
        name = None
    open_to_them = {entry.name for _, entries in viewer.navigation for entry in entries}
    return name if name in open_to_them and name is not None else "overview"


ASKS_MAX = 30
ASKS_WINDOW_S = 3_600


class ForgotForm(forms.Form):
    email = forms.EmailField(max_length=EMAIL_CHARS_MAX)


@never_cache
@require_http_methods(["GET", "POST"])
def forgot(request: HttpRequest) -> HttpResponse:
    """Ask for the address, and say that a link is on its way to it, if it is an account's."""
    if not settings.EMAIL_HOST:
        raise Http404
    form = ForgotForm(request.POST or None)
    if request.method == "GET" or not form.is_valid():
        status = 422 if form.errors else 200
        return render(request, "people/forgot.html", {"form": form}, status=status)
    if counts.add(f"forgot:{address_counted(client_address(request))}", ASKS_WINDOW_S) > ASKS_MAX:
        answer = notice(request, "Too many requests", "Try again in an hour.", status=429)
        answer["Retry-After"] = str(ASKS_WINDOW_S)
        return answer
    password_link_ask(
        email=form.cleaned_data["email"], place=f"{_pages(request)}{accounts.SETUP_PATH}"
    )
    text = (
        "If an account with this address and a password exists, we sent a link to set a new one. "
        "It works once, within 30 minutes. At most 3 links are sent per hour."
    )
    return notice(request, "Check your mail", text, status=200)


def _pages(request: HttpRequest) -> str:
    """Where the pages answer. Whoever asks is a stranger: no port of theirs gets into a mail."""
    host = split_domain_port(request.get_host())[0]
    return settings.PAGES_URL or f"{request.scheme}://{host}"
