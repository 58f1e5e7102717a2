"""Addresses of the pages. A page's address is its view: range, filters and open item are in it.

`page` says the address of what members see; those of sign-in and invitations are here.
"""

from pathlib import Path

from django.urls import path

from controlplane.core.addresses import modules_load, paths_of
from frontend.people import account_views, member_views, provider_views, sign_in_views
from frontend.shared.access import NAMES, PAGES

modules_load(Path(__file__).parent, "*views.py")

urlpatterns = [
    *paths_of(PAGES, NAMES),
    path("invitation/<str:token>", member_views.invitation, name="invitation"),
    path("organization", sign_in_views.organization_choose, name="organization_choose"),
    path("sign-in", sign_in_views.sign_in, name="sign_in"),
    path("sign-in/forgot", sign_in_views.forgot, name="forgot"),
    path("sign-in/second", sign_in_views.second_factor, name="second_factor"),
    path("sign-in/passkey", account_views.passkey_ask, name="passkey_ask"),
    path(
        "sign-in/provider/<slug:provider_id>", provider_views.provider_begin, name="provider_begin"
    ),
    path(
        "sign-in/provider/<slug:provider_id>/done",
        provider_views.provider_done,
        name="provider_done",
    ),
    path("sign-out", sign_in_views.sign_out, name="sign_out"),
    path("setup/<str:token>", sign_in_views.setup, name="setup"),
]
