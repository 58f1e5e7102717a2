"""Sign-in through an identity provider that speaks OpenID Connect; off where no issuer is named."""

from django.core.exceptions import ImproperlyConfigured

from controlplane.core.permissions import Role
from controlplane.settings import env

OIDC_ISSUER = env.address("SLUICE_OIDC_ISSUER", ("https", "http"), chars_max=255).rstrip("/")
OIDC_CLIENT_ID = env.text("SLUICE_OIDC_CLIENT_ID")
OIDC_CLIENT_SECRET = env.text("SLUICE_OIDC_CLIENT_SECRET")
# What the button says.
OIDC_NAME = env.text("SLUICE_OIDC_NAME", "single sign-on") if OIDC_ISSUER else ""
# Which claim has a person's address, and whether the issuer's word for it is enough: the operator
# says so of a directory whose addresses no one but its administrators sets.
OIDC_EMAIL_CLAIM = env.text("SLUICE_OIDC_EMAIL_CLAIM", "email")
OIDC_EMAIL_TRUSTED = env.boolean("SLUICE_OIDC_EMAIL_TRUSTED", False)
# Whoever the provider knows under an address of this domain may come in without an invitation, in
# this role of the organization with this id; without a domain no one may.
OIDC_DOMAIN = env.text("SLUICE_OIDC_DOMAIN").lower()
OIDC_ORGANIZATION = env.text("SLUICE_OIDC_ORGANIZATION")
OIDC_ROLE = env.choice("SLUICE_OIDC_ROLE", Role.VIEWER, (Role.VIEWER, Role.DEVELOPER, Role.FINANCE))

if OIDC_ISSUER and not (OIDC_CLIENT_ID and OIDC_CLIENT_SECRET):
    raise ImproperlyConfigured(
        "SLUICE_OIDC_ISSUER needs SLUICE_OIDC_CLIENT_ID and SLUICE_OIDC_CLIENT_SECRET."
    )
if bool(OIDC_DOMAIN) != bool(OIDC_ORGANIZATION):
    raise ImproperlyConfigured("SLUICE_OIDC_DOMAIN and SLUICE_OIDC_ORGANIZATION go together.")
if OIDC_EMAIL_CLAIM != "email" and not OIDC_EMAIL_TRUSTED:
    raise ImproperlyConfigured(
        "SLUICE_OIDC_EMAIL_CLAIM needs SLUICE_OIDC_EMAIL_TRUSTED: email_verified is about `email`."
    )
