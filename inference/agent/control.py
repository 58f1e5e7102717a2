"""The agent's requests to the control plane: its enrolment, once, and its reports."""

import logging
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from inference.contract.hosts import (
    ENROL_PATH,
    HOST_PREFIX,
    REPORT_PATH,
    HostOrders,
    HostReport,
)
from inference.node.enrol import kept_read, kept_write, secret_of
from inference.node.options import ENROL_VARIABLE, LOCAL_HOSTS, BadOption
from inference.tls import client_context

ANSWER_BYTES_MAX = 4 << 20
ANSWER_S_MAX = 10.0
REFUSED = 401
CREDENTIAL_FILE = "credential"
AGAIN = (
    "To go on, add the host again on the page Deployments, and start its agent with the new token "
    f"in {ENROL_VARIABLE}."
)
logger = logging.getLogger(__name__)


class ControlAway(Exception):
    """The control plane did not answer, or not as it should; it is asked again later."""


class HostRefused(Exception):
    """The control plane no longer knows this host."""


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        # A credential goes nowhere but where the agent was told.
        return None


class ControlPlane:
    """The control plane at `url`; raises BadOption for one that carries secrets in the clear."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        local = parts.hostname in LOCAL_HOSTS
        if not parts.hostname or parts.scheme not in (("https", "http") if local else ("https",)):
            raise BadOption(f"--control: {url!r} is not an https:// URL")
        self._url = url.rstrip("/")
        # Where nodes dial if no gateway says its own address.
        self.gateway = self._url.replace("http", "ws", 1)
        direct = [urllib.request.ProxyHandler({})] if local else []
        try:
            secure = urllib.request.HTTPSHandler(context=client_context())
        except ValueError as error:
            raise BadOption(str(error)) from error
        self._opener = urllib.request.build_opener(_Stay, secure, *direct)
        self._credential = ""

    def enrol(self, environment: Mapping[str, str], data: Path, name: str) -> None:
        """Get a credential for the token, which replaces the one that is kept; that one is taken
        where there is no token, or it was used before. Raises BadOption."""
        file = data / CREDENTIAL_FILE
        kept = kept_read(file) if file.exists() else ""
        token = secret_of(environment, ENROL_VARIABLE)
        if not token and not kept:
            raise BadOption(f"{ENROL_VARIABLE}: set it in the environment for the first start")
        try:
            earned = self._redeem(token, name) if token else ""
        except BadOption as error:
            if not kept:
                raise
            logger.info("the kept credential is used: %s", error)
            earned = ""
        if earned:
            kept_write(file, earned)
        self._credential = earned or kept

    def _redeem(self, token: str, name: str) -> str:
        try:
            answer = self._post(ENROL_PATH, {"token": token, "name": name})
            earned = str(msgspec.json.decode(answer)["credential"])
        except (ControlAway, HostRefused, msgspec.DecodeError, KeyError, TypeError) as error:
            raise BadOption(f"{ENROL_VARIABLE}: {error}") from error
        if not earned.startswith(HOST_PREFIX):
            raise BadOption(f"{ENROL_VARIABLE}: {self._url} did not answer with a credential")
        return earned

    def report(self, report: HostReport) -> HostOrders:
        """What should run here; raises ControlAway or HostRefused."""
        try:
            return msgspec.json.decode(self._post(REPORT_PATH, report), type=HostOrders)
        except msgspec.DecodeError as error:
            raise ControlAway(f"{self._url} answered with no orders: {error}") from error

    def _post(self, path: str, body: object) -> bytes:
        headers = {"Content-Type": "application/json"}
        if self._credential:
            headers["Authorization"] = f"Bearer {self._credential}"
        request = urllib.request.Request(self._url + path, msgspec.json.encode(body), headers)
        try:
            with self._opener.open(request, timeout=ANSWER_S_MAX) as answer:
                found: bytes = answer.read(ANSWER_BYTES_MAX)
                return found
        except urllib.error.HTTPError as error:
            with error:
                told = error.read(ANSWER_BYTES_MAX).decode(errors="replace")
            # A 403 is some proxy's: that must not end all nodes of a host.
            if error.code == REFUSED:
                raise HostRefused(f"{self._url} refuses this host: {told} {AGAIN}") from error
            raise ControlAway(f"{self._url} answers HTTP {error.code}: {told}") from error
        except (OSError, HTTPException) as error:
            raise ControlAway(f"{self._url} does not answer: {error}") from error
