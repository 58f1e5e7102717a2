"""Whom we believe when we dial: the system's authorities, and those of a file beside them."""

import os
import ssl
from functools import cache

# A PEM file with authorities of one's own; nodes and settings read it.
CA_VARIABLE = "SLUICE_CA_FILE"


def client_context() -> ssl.SSLContext:
    """For outgoing TLS; raises ValueError that names the variable where its file is of no use."""
    return _shared(os.environ.get(CA_VARIABLE, "").strip())


def own_context() -> ssl.SSLContext:
    """The same for a client that changes its context, as urllib3 does; raises ValueError."""
    return _made(os.environ.get(CA_VARIABLE, "").strip())


@cache
def _shared(file: str) -> ssl.SSLContext:
    # Made once: reading the system's authorities takes some 20 ms.
    return _made(file)


def _made(file: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if file:
        try:
            context.load_verify_locations(cafile=file)
        except OSError as error:
            raise ValueError(f"{CA_VARIABLE}: {file}: {error.strerror or error}") from error
    return context
