"""Where commands ask the gateway's own API, and with which key."""

import json
import os
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management.base import CommandError

from controlplane.embedded.processes import RunFile, living
from inference.tls import client_context

KEY_VARIABLE = "SLUICE_API_KEY"
TIMEOUT_S = 120.0


def post(address: str, key: str, body: bytes, *, agent: str) -> tuple[int, dict[str, Any]]:
    """Status and JSON of the answer to one request; raises CommandError where there is none."""
    parts = urlsplit(checked_url(address))
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        connection: HTTPConnection = HTTPSConnection(
            host, port, timeout=TIMEOUT_S, context=client_context()
        )
    else:
        connection = HTTPConnection(host, port, timeout=TIMEOUT_S)
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "User-Agent": agent,
    }
    try:
        connection.request("POST", parts.path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except (OSError, HTTPException, ValueError) as error:
        raise CommandError(f"the gateway cannot be reached: {error}") from error
    finally:
        connection.close()


def checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandError(f"{url!r} is not a URL such as http://127.0.0.1:8000.")
    return url


def key_from_environment() -> str:
    """An inference key; never an argument, since those are seen by all on the machine."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key:
        raise CommandError(f"Set {KEY_VARIABLE} to an inference key; create one on the Keys page.")
    return key


def gateway_url(given: str | None) -> str:
    """The address given, else that of the Sluice that runs on this machine."""
    if given:
        return given.rstrip("/")
    run = RunFile(Path(settings.DATA_DIR)).read()
    if run is None or living(run.supervisor) is None:
        raise CommandError("Sluice is not running here: set a gateway with --url.")
    return run.url
