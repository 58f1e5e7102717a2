"""Sign-in through identity providers that speak OpenID Connect; off where none is named."""

from django.core.exceptions import ImproperlyConfigured

from controlplane.settings import env
from controlplane.tenants.sign_in.providers import providers_read

try:
    OIDC_PROVIDERS = providers_read(env.text("SLUICE_OIDC_PROVIDERS", "[]"))
except ValueError as _error:
    raise ImproperlyConfigured(f"SLUICE_OIDC_PROVIDERS: {_error}.") from None
