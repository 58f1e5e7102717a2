"""The connection to the server: one client, what it serves, one streamed request at a time per job.

Bounds: connect, first byte, silence between bytes, and the job's own end. The key goes nowhere
else and into no log.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec

from inference.engines.remote.errors import clean, refusal_of
from inference.engines.remote.events import EventReader
from inference.engines.remote.options import (
    KEEPALIVE_S,
    KEY_VARIABLE,
    LIST_TIMEOUT_S,
    WRITE_TIMEOUT_S,
    RemoteOptions,
)
from inference.errors import JobRefused, ModelError

BODY_BYTES_MAX = 1024 * 1024
ERROR_BYTES_MAX = 64 * 1024
NAMES_SHOWN_MAX = 8
# How long a finished stream may take to close, so that its connection can be used again.
TAIL_WAIT_S = 1.0
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
EVENT_STREAM = "text/event-stream"
# What servers call the length of their context, in the order of trust.
WINDOW_FIELDS = ("max_model_len", "context_window", "context_length")


class Listed(msgspec.Struct, frozen=True):
    """What the server's list says of the model; None and False where it says nothing."""

    context_window: int | None = None
    is_vllm: bool = False


class Server:
    def __init__(self, options: RemoteOptions) -> None:
        self._options = options
        headers = {"accept-encoding": "identity", "user-agent": "sluice-node"}
        if options.key:
            headers["authorization"] = f"Bearer {options.key}"
        self._client = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(
                None,
                connect=options.connect_timeout_s,
                write=WRITE_TIMEOUT_S,
                pool=options.connect_timeout_s,
            ),
            # Streams that are just ending briefly hold theirs next to those of new jobs.
            limits=httpx2.Limits(
                max_connections=2 * options.credits,
                max_keepalive_connections=options.credits,
                keepalive_expiry=KEEPALIVE_S,
            ),
            trust_env=urlsplit(options.url).hostname not in LOCAL_HOSTS,
        )

    async def find_model(self) -> Listed:
        """Look the model up in the server's list, where it has one; raises `ModelError`."""
        options = self._options
        try:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                status, body = await self._get("/models")
        except (httpx2.HTTPError, TimeoutError, OSError) as error:
            reason = clean(f"{type(error).__name__}: {error}", options.key)
            raise ModelError(f"--url: {options.url} does not answer: {reason}") from error
        if status in (401, 403):
            raise ModelError(f"{KEY_VARIABLE}: {options.url} refused it (HTTP {status})")
        return _listed(body, options.upstream_model) if status == httpx2.codes.OK else Listed()

    async def stream(
        self,
        path: str,
        body: bytes,
        *,
        heard: Callable[[], None],
        take: Callable[[bytes], bool],
        end_s: float,
        headers: dict[str, str],
    ) -> None:
        """Send a request and hand each event's data to `take` until it returns False.

        `heard` is called for all bytes received, whether an event or not.
        Returns early where the server ends the stream; raises `JobRefused`, `UpstreamBroken`,
        TimeoutError (silence, or `end_s` on the loop's clock) or an error of the connection.
        """
        now, reader, wanted = asyncio.get_running_loop().time, EventReader(), True
        async with asyncio.timeout_at(
            min(end_s, now() + self._options.first_byte_timeout_s)
        ) as bound:
            async with self._client.stream(
                "POST", self._options.url + path, content=body, headers=_JSON | headers
            ) as response:
                await self._check(response)
                async for data in response.aiter_raw():
                    heard()
                    for event in reader.feed(data):
                        wanted = wanted and take(event)
                    wait_s = self._options.idle_timeout_s if wanted else TAIL_WAIT_S
                    bound.reschedule(min(end_s, now() + wait_s))

    async def close(self) -> None:
        await self._client.aclose()

    async def _get(self, path: str) -> tuple[int, bytes]:
        async with self._client.stream("GET", self._options.url + path) as response:
            return response.status_code, await _bounded(response, BODY_BYTES_MAX)

    async def _check(self, response: httpx2.Response) -> None:
        """Accept only a stream of events; raises `JobRefused`."""
        if response.status_code != httpx2.codes.OK:
            body = await _bounded(response, ERROR_BYTES_MAX)
            raise refusal_of(response.status_code, body, key=self._options.key)
        if not response.headers.get("content-type", "").startswith(EVENT_STREAM):
            raise JobRefused("bad_job", "the server answered without a stream of events")


_JSON = {"content-type": "application/json", "accept": EVENT_STREAM}


async def _bounded(response: httpx2.Response, bytes_max: int) -> bytes:
    body = b""
    async for data in response.aiter_raw():
        body += data
        if len(body) >= bytes_max:
            break
    return body[:bytes_max]


def _listed(body: bytes, model: str) -> Listed:
    """The model's row of a list; raises `ModelError` where the list has others only."""
    try:
        rows = msgspec.json.decode(body, type=dict[str, Any])["data"]
        known = {str(row["id"]): row for row in rows}
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError):
        return Listed()
    row = known.get(model)
    if row is None:
        names = ", ".join(sorted(known)[:NAMES_SHOWN_MAX]) or "nothing"
        raise ModelError(f"--upstream-model: the server has no {model!r}; it offers {names}")
    sizes = [size for field in WINDOW_FIELDS if isinstance(size := row.get(field), int)]
    window = next((size for size in sizes if size > 0), None)
    return Listed(window, row.get("owned_by") == "vllm")
