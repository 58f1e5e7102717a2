"""Whose certificates count when something is dialled, beside the authorities of the system."""

from django.core.exceptions import ImproperlyConfigured

from controlplane.settings import env
from inference.tls import CA_VARIABLE, client_context

CA_FILE = env.text(CA_VARIABLE)
if CA_FILE:
    try:
        client_context()
    except ValueError as _error:
        raise ImproperlyConfigured(f"{_error}.") from None
