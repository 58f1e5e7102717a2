"""A small client of the gateway's own API, for commands: one request at a time on a connection."""

import json
import os
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management.base import CommandError

from controlplane.embedded.processes import RunFile, living
from controlplane.kernel.clock import monotonic_ns
from controlplane.kernel.money import nano_from_usd
from inference.tls import client_context

KEY_VARIABLE = "SLUICE_API_KEY"
TIMEOUT_S = 120.0
NS_PER_US = 1_000
OK = 200
CHAT = "/v1/chat/completions"
_EVENT, _DONE = b"data: ", b"[DONE]"


class Refused(Exception):
    """The gateway answered with an error, or not at all."""


@dataclass(frozen=True)
class Answered:
    """One chat completion. Without a stream the first token is seen when the last is.

    `model` is the one that served, whichever was asked for.
    """

    model: str
    latency_us: int
    ttft_us: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_nano: int


class Client:
    """One connection to a gateway, opened at first use and again after `close`."""

    def __init__(self, url: str, key: str, *, agent: str = "sluice") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CommandError(f"{url!r} is not a URL such as http://127.0.0.1:8000.")
        if parts.scheme == "https":
            self._connection: HTTPConnection = HTTPSConnection(
                parts.hostname, parts.port, timeout=TIMEOUT_S, context=client_context()
            )
        else:
            self._connection = HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)
        self._headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json",
            "User-Agent": agent,
        }

    def close(self) -> None:
        self._connection.close()

    def post(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Status and JSON of the answer; raises Refused where there is none."""
        try:
            answer = self._send(path, body)
            return answer.status, json.loads(answer.read())
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            raise Refused(f"the gateway cannot be reached: {error}") from error

    def chat(self, body: dict[str, Any]) -> Answered:
        """Ask, and time the answer; raises Refused."""
        began = monotonic_ns()
        try:
            answer = self._send(CHAT, json.dumps(body).encode())
            if answer.status != OK:
                raise Refused(_told(answer))
            first, whole = _streamed(answer) if body.get("stream") else (0, json.load(answer))
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            raise Refused(str(error)) from error
        ended = monotonic_ns()
        usage = whole["usage"]
        return Answered(
            model=answer.headers.get("x-sluice-model", whole["model"]),
            latency_us=(ended - began) // NS_PER_US,
            ttft_us=((first or ended) - began) // NS_PER_US,
            prompt_tokens=usage["prompt_tokens"],
            cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
            output_tokens=usage["completion_tokens"],
            cost_nano=nano_from_usd(whole["sluice"]["cost_usd"]),
        )

    def _send(self, path: str, body: bytes) -> HTTPResponse:
        self._connection.request("POST", path, body, self._headers)
        return self._connection.getresponse()


def _streamed(answer: HTTPResponse) -> tuple[int, dict[str, Any]]:
    """When the first text came, and the event that has the usage; raises ValueError without it."""
    first, last = 0, None
    ended = False
    for line in answer:
        if not line.startswith(_EVENT):
            continue
        data = line[len(_EVENT) :].strip()
        if data == _DONE:
            ended = True
            continue
        event = json.loads(data)
        if event.get("usage"):
            last = event
        elif not first and any(map(_tells, event.get("choices", []))):
            first = monotonic_ns()
    if last is None or not ended:
        raise ValueError("the stream ended before its end")
    return first, last


def _tells(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta", {})
    return bool(delta.get("content") or delta.get("reasoning_content"))


def _told(answer: HTTPResponse) -> str:
    try:
        return f"{answer.status}: {json.loads(answer.read())['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{answer.status}: the response is not JSON"


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
