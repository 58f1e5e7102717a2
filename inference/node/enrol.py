"""The node's own credential: from the environment, from its file, or once for an enrolment token.

A token is redeemed by one HTTP request to the control plane, before any link is dialled.
"""

import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import msgspec

from inference.node.options import (
    CREDENTIAL_PREFIX,
    CREDENTIAL_VARIABLE,
    ENROL_VARIABLE,
    LOCAL_HOSTS,
    BadOption,
)  # fmt: skip
from inference.secret_files import secret_given
from inference.tls import client_context

ENROL_PATH = "/api/fleet/enrol"
ANSWER_BYTES_MAX = 64 * 1024
# Long, since a token is used up by a request whose answer is not waited for.
ANSWER_S_MAX = 60.0
FILE_OPTION = "--credential-file"


@dataclass(frozen=True, kw_only=True)
class Enrolment:
    """What a token is redeemed with, and where; `url` is the control plane's http(s) address."""

    url: str
    name: str
    pool: str


def credential(environment: Mapping[str, str], file: Path | None, enrolment: Enrolment) -> str:
    """The node's credential; a token is only redeemed where there is none yet.

    Raises `BadOption` that says what is missing or what was refused.
    """
    given = secret_of(environment, CREDENTIAL_VARIABLE)
    if given:
        return given
    if file is not None and file.exists():
        return kept_read(file)
    token = secret_of(environment, ENROL_VARIABLE)
    if not token:
        raise BadOption(f"{CREDENTIAL_VARIABLE} or {ENROL_VARIABLE}: set one in the environment")
    if file is None:
        raise BadOption(f"{FILE_OPTION}: an enrolled node needs a file to keep its credential in")
    # Checked before the token is redeemed, since the credential is only returned once.
    if not file.parent.is_dir() or not os.access(file.parent, os.W_OK):
        raise BadOption(f"{FILE_OPTION}: {file.parent} is not a writable folder")
    earned = _redeem(token, enrolment)
    kept_write(file, earned)
    return earned


def secret_of(environment: Mapping[str, str], name: str) -> str:
    """A secret by variable or file; empty where there is none. Raises BadOption."""
    try:
        return secret_given(environment, name)
    except ValueError as error:
        raise BadOption(str(error)) from error


def control_plane_url(gateway: str) -> str:
    """Where the control plane answers if it shares the gateway's address: ws becomes http."""
    parts = urlsplit(gateway)
    scheme = "https" if parts.scheme == "wss" else "http"
    return urlunsplit((scheme, parts.netloc, "", "", ""))


def _redeem(token: str, enrolment: Enrolment) -> str:
    address = urlsplit(enrolment.url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise BadOption(f"--enrol-url: {enrolment.url!r} is not an http:// or https:// URL")
    request = urllib.request.Request(
        enrolment.url.rstrip("/") + ENROL_PATH,
        data=msgspec.json.encode({"token": token, "name": enrolment.name, "pool": enrolment.pool}),
        headers={"Content-Type": "application/json"},
    )
    direct = [urllib.request.ProxyHandler({})] if address.hostname in LOCAL_HOSTS else []
    secure = urllib.request.HTTPSHandler(context=client_context())
    try:
        opener = urllib.request.build_opener(secure, *direct)
        with opener.open(request, timeout=ANSWER_S_MAX) as answer:
            earned = _decoded(answer.read(ANSWER_BYTES_MAX)).credential
    except urllib.error.HTTPError as error:
        with error:
            raise BadOption(_refusal(error.code, error.read(ANSWER_BYTES_MAX))) from error
    except OSError as error:
        raise BadOption(f"{ENROL_VARIABLE}: {enrolment.url} does not answer: {error}") from error
    if not earned.startswith(CREDENTIAL_PREFIX):
        raise BadOption(f"{ENROL_VARIABLE}: {enrolment.url} did not answer with a credential")
    return earned


class _Error(msgspec.Struct):
    message: str = ""
    fields: dict[str, list[str]] = {}


class _Answer(msgspec.Struct):
    credential: str = ""
    error: _Error | None = None


def _refusal(status: int, body: bytes) -> str:
    error = _decoded(body).error
    if error is None:
        return f"{ENROL_VARIABLE}: refused with HTTP {status}; is --enrol-url the control plane?"
    details = " ".join(f"--{name}: {' '.join(texts)}" for name, texts in error.fields.items())
    return f"{ENROL_VARIABLE}: {details or error.message}"


def _decoded(body: bytes) -> _Answer:
    try:
        return msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Answer()


def kept_read(file: Path) -> str:
    """The credential that a file keeps; raises BadOption."""
    try:
        return file.read_text().strip()
    except OSError as error:
        raise BadOption(f"{FILE_OPTION}: {error}") from error


def kept_write(file: Path, text: str) -> None:
    """Keep a credential in a file that its owner alone can read."""
    # Made with mode 600 and put in place whole: never readable by others, never half there.
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    with os.fdopen(handle, "w") as out:
        out.write(text + "\n")
        out.flush()
        os.fsync(out.fileno())
    os.replace(name, file)
