"""Whose certificates count when something is dialled, beside the authorities of the system."""

from django.core.exceptions import ImproperlyConfigured

from controlplane.settings import env
from inference.tls import CA_VARIABLE, client_context


def _ca_file() -> str:
    try:
        client_context()
    except ValueError as error:
        raise ImproperlyConfigured(f"{error}.") from None
    return env.text(CA_VARIABLE)


CA_FILE = _ca_file()
