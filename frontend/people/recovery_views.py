"""Forgot your password: a link by mail, for whoever asks; all of them are shown the same."""

from django import forms
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.http.request import split_domain_port
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from controlplane.core.audit.origin import client_address
from controlplane.core.counts import counts
from controlplane.core.mail import EMAIL_CHARS_MAX
from controlplane.kernel.keys.scopes import address_counted
from controlplane.tenants.sign_in.accounts import SETUP_PATH
from controlplane.tenants.sign_in.recovery import password_link_ask

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
        return _told(request, "Too many requests", "Try again in an hour.", status=429)
    password_link_ask(email=form.cleaned_data["email"], place=f"{_pages(request)}{SETUP_PATH}")
    return _told(
        request,
        "Check your mail",
        "If an account with this address and a password exists, we sent a link to set a new one. "
        "It works once, within 30 minutes. At most 3 links are sent per hour.",
    )


def _pages(request: HttpRequest) -> str:
    """Where the pages answer. Whoever asks is a stranger: no port of theirs gets into a mail."""
    host = split_domain_port(request.get_host())[0]
    return settings.PAGES_URL or f"{request.scheme}://{host}"


def _told(request: HttpRequest, title: str, text: str, status: int = 200) -> HttpResponse:
    context = {
        "title": title,
        "text": text,
        "link": reverse("sign_in"),
        "link_text": "Back to sign-in",
    }
    answer = render(request, "shared/notice.html", context, status=status)
    if status != 200:
        answer["Retry-After"] = str(ASKS_WINDOW_S)
    return answer
