"""The connection to the server: one client, what it serves, one streamed request at a time per job;
its options, and its bounds.

Bounds: connect, first byte, silence between bytes, and the job's own end. The key goes nowhere else
and into no log.
"""

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import httpx2
import msgspec

from inference.contract.capabilities import Capability
from inference.engines.remote.errors import clean, refusal_of
from inference.engines.remote.events import EventReader
from inference.engines.remote.kinds import AUTO, BEARER, KINDS, kind_at, kind_of_owner, version_of
from inference.engines.remote.patience import Patience, Silence
from inference.errors import JobRefused, ModelError
from inference.secret_files import secret_given
from inference.tls import client_context

KEY_VARIABLE = "SLUICE_UPSTREAM_KEY"
API_PATH = "/v1"
CREDITS = 64
CONNECT_TIMEOUT_S = 5.0
FIRST_BYTE_TIMEOUT_S = 120.0
IDLE_TIMEOUT_S = 60.0
# Of what is learned up to these.
FIRST_BYTE_FLOOR_S = 60.0
IDLE_FLOOR_S = 30.0
WRITE_TIMEOUT_S = 30.0
# Shorter than what servers keep, so that a connection is not used just as it is closed.
KEEPALIVE_S = 2.0
LIST_TIMEOUT_S = 10.0
VERSION_TIMEOUT_S = 3.0
# A prompt of 100,000 tokens takes a server some tenths of a second.
TOKENS_TIMEOUT_S = 5.0
OUTPUT_FIELDS = ("max_tokens", "max_completion_tokens")
BODY_BYTES_MAX = 1024 * 1024
# As many ids as a frame can hold, with their commas.
TOKENS_BYTES_MAX = 8 * 1024 * 1024
ERROR_BYTES_MAX = 64 * 1024
NAMES_SHOWN_MAX = 8
# How long a finished stream may take to close, so that its connection can be used again.
TAIL_WAIT_S = 1.0
KV_ROLES: dict[str, tuple[Capability, ...]] = {
    "": (), "prefill": (Capability.HANDS_OVER,), "decode": (Capability.TAKES_OVER,),
}  # fmt: skip
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
EVENT_STREAM, ANSWER = "text/event-stream", "application/json"
# Where vLLM says the size of its cache.
VLLM_CACHE = re.compile(r"^vllm:cache_config_info\{.*\}", re.M)
LABEL = re.compile(r'(\w+)="([^"]*)"')
ADAPTERS_MAX = 63
# What servers call the length of their context, in the order of trust.
WINDOW_FIELDS = ("max_model_len", "context_window", "context_length")


@dataclass(frozen=True, kw_only=True)
class RemoteOptions:
    """`name` is what we offer, `upstream_model` what the server calls it; one serves for both.

    `context_window` None asks the server. `vision` auto believes its list of models
    whether it takes images, `server` auto its answers which of `KINDS` it is. `kv_events` are the
    addresses of its cache events and, behind a comma, of their replays, `socket` a local one
    instead of that of `url`; `priorities`: it takes requests in their order; `api_version` is said
    with each request to it, where it is given. By its `kv_role` it computes prompts for other
    servers, or takes those of others over. The key is read from
    the environment, never from the command line, where every user of the machine could see it.
    Raises ValueError.
    """

    url: str = ""
    name: str = ""
    upstream_model: str = ""
    context_window: int | None = None
    credits: int = CREDITS
    output_field: str = OUTPUT_FIELDS[0]
    vision: str = "auto"
    server: str = AUTO
    kv_events: str = ""
    socket: str = ""
    kv_role: str = ""
    priorities: bool = False
    api_version: str = ""
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    first_byte_timeout_s: float = FIRST_BYTE_TIMEOUT_S
    idle_timeout_s: float = IDLE_TIMEOUT_S
    first_byte_floor_s: float = FIRST_BYTE_FLOOR_S
    idle_floor_s: float = IDLE_FLOOR_S
    key: str = field(default_factory=lambda: secret_given(os.environ, KEY_VARIABLE), repr=False)

    def __post_init__(self) -> None:
        if self.kv_role not in KV_ROLES:
            raise ValueError("--kv-role: must be prefill or decode")
        if not self.name and not self.upstream_model:
            raise ValueError("--model-name or --upstream-model: one of them is needed")
        # Frozen: these three are settled once, here.
        object.__setattr__(self, "url", api_url(self.url))
        object.__setattr__(self, "name", self.name or self.upstream_model)
        object.__setattr__(self, "upstream_model", self.upstream_model or self.name)
        for flag, least_one in (("context-window", self.context_window), ("credits", self.credits)):
            if least_one is not None and least_one < 1:
                raise ValueError(f"--{flag}: must be at least 1")
        if self.output_field not in OUTPUT_FIELDS:
            raise ValueError(f"--output-field: must be one of {', '.join(OUTPUT_FIELDS)}")
        if self.vision not in ("auto", "on", "off"):
            raise ValueError("--vision: must be auto, on or off")
        if self.server != AUTO and self.server not in KINDS:
            raise ValueError(f"--server: must be {AUTO} or one of {', '.join(KINDS)}")
        ends = self.kv_events.split(",") if self.kv_events else []
        if len(ends) > 2 or not all(each.startswith(("tcp://", "ipc://")) for each in ends):
            raise ValueError("--kv-events: must be tcp:// or ipc:// addresses, at most two")
        times = ("connect_timeout", "first_byte_timeout", "idle_timeout")
        for flag in (*times, "first_byte_floor", "idle_floor"):
            if not 0 < getattr(self, f"{flag}_s") < inf:
                raise ValueError(f"--{flag.replace('_', '-')}: must be more than 0 seconds")
        if not (self.key.isascii() and self.key.isprintable()) or self.key != self.key.strip():
            raise ValueError(f"{KEY_VARIABLE}: has characters that no header can carry")

    def known_as(self, model: str) -> str:
        """What the server calls a model of ours; an adapter has the server's own name."""
        return self.upstream_model if model == self.name else model


def api_url(given: str) -> str:
    """Check the server's URL and add the API's path where none is given; raises ValueError."""
    parts = urlsplit(given)
    try:
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole:
        raise ValueError(
            "--url: must be the http:// or https:// URL of an OpenAI-compatible server"
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError(f"--url: only host, port and path; a key belongs in {KEY_VARIABLE}")
    path = parts.path.rstrip("/") or API_PATH
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


class Listed(msgspec.Struct, frozen=True):
    """What the server's list says of the model; None, False and empty where it says nothing.
    `adapters` are names of those that change it.
    """

    context_window: int | None = None
    owner: str = ""
    sees: bool = False
    adapters: tuple[str, ...] = ()


class Server:
    """`kind` is one of `KINDS` once the model was found, `AUTO` before unless it was given or its
    address tells it; `version` is empty where the server does not say it.
    """

    def __init__(self, options: RemoteOptions) -> None:
        self._options = options
        self.kind, self.version = options.server, ""
        # How long it may be silent before an answer, and within one.
        self.begins = Patience(options.first_byte_floor_s, options.first_byte_timeout_s)
        self.goes_on = Patience(options.idle_floor_s, options.idle_timeout_s)
        # Learns from the status and the headers of each answer.
        self.told_head: Callable[[int, Mapping[str, str]], None] | None = None
        self._query = f"?{urlencode({'api-version': options.api_version})}"
        if not options.api_version:
            self._query = ""
        if self.kind == AUTO:
            self.kind = kind_at(urlsplit(options.url).hostname or "")
        headers = {"accept-encoding": "identity", "user-agent": "sluice-node"}
        if options.key:
            header = BEARER if self.kind == AUTO else KINDS[self.kind].key
            headers[header] = f"Bearer {options.key}" if header == BEARER else options.key
        if self.kind != AUTO:
            headers |= dict(KINDS[self.kind].also)
        # Streams that are just ending briefly hold theirs next to those of new jobs.
        limits = httpx2.Limits(
            max_connections=2 * options.credits,
            max_keepalive_connections=options.credits,
            keepalive_expiry=KEEPALIVE_S,
        )
        transport = None
        if options.socket:
            transport = httpx2.AsyncHTTPTransport(uds=options.socket, limits=limits)
        self._client = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(
                None,
                connect=options.connect_timeout_s,
                write=WRITE_TIMEOUT_S,
                pool=options.connect_timeout_s,
            ),
            limits=limits,
            transport=transport,
            verify=client_context(),
            trust_env=urlsplit(options.url).hostname not in LOCAL_HOSTS,
        )

    async def find_model(self) -> Listed:
        """Look the model up in the server's list, where it has one; raises `ModelError`."""
        options = self._options
        try:
            status, body = await self._get(f"{options.url}/models{self._query}", LIST_TIMEOUT_S)
        except (httpx2.HTTPError, TimeoutError, OSError) as error:
            reason = clean(f"{type(error).__name__}: {error}", options.key)
            raise ModelError(f"--url: {options.url} does not answer: {reason}") from error
        if status in (401, 403):
            raise ModelError(f"{KEY_VARIABLE}: {options.url} refused it (HTTP {status})")
        found = _listed(body, options.upstream_model) if status == httpx2.codes.OK else Listed()
        await self._recognise(found.owner)
        return found

    async def _recognise(self, owner: str) -> None:
        """Settle `kind` and `version`: by the owner of its models, or by what only it answers."""
        if self.kind == AUTO:
            self.kind = kind_of_owner(owner)
        asked = KINDS if self.kind == AUTO else [self.kind]
        for name in asked:
            # Its answer alone says nothing: others have the same path.
            if self.kind == AUTO and KINDS[name].owners and len(KINDS[name].fields) == 1:
                continue
            for path in KINDS[name].paths:
                version = version_of(KINDS[name], await self.told(path))
                if version is not None:
                    self.kind, self.version = name, version
                    return
        if self.kind == AUTO:
            self.kind = "other"

    async def cache_size(self) -> tuple[int, int, int] | None:
        """Tokens of a block, blocks of a data-parallel rank and ranks; None where the server does
        not say.
        """
        ranks = 1
        if self.kind == "vllm":
            found = VLLM_CACHE.findall(await self._text("/metrics"))
            told = dict(LABEL.findall(found[0])) if found else {}
            sizes, ranks = (told.get("block_size"), told.get("num_gpu_blocks")), len(set(found))
        else:
            told = await self.told("/server_info") or await self.told("/get_server_info")
            page = told.get("page_size")
            tokens = told.get("max_total_num_tokens")
            sizes = page, tokens // page if page and tokens else None
        try:
            block_size, blocks = (int(each or 0) for each in sizes)
        except ValueError:
            return None
        return (block_size, blocks, ranks) if block_size > 0 < blocks else None

    async def told(self, path: str, asked: dict[str, Any] | None = None) -> dict[str, Any]:
        """What the server says at a path from its root, of what is `asked` there; empty where that
        is no object.
        """
        try:
            return msgspec.json.decode(await self._text(path, asked), type=dict[str, Any])
        except (ValueError, RecursionError):
            return {}

    async def _text(self, path: str, asked: dict[str, Any] | None = None) -> str:
        root = urlsplit(self._options.url)._replace(path=path)
        timeout_s = VERSION_TIMEOUT_S if asked is None else TOKENS_TIMEOUT_S
        try:
            status, body = await self._get(urlunsplit(root), timeout_s, asked)
        except (httpx2.HTTPError, TimeoutError, OSError):
            return ""
        return body.decode(errors="replace") if status == httpx2.codes.OK else ""

    async def _get(
        self, url: str, timeout_s: float, asked: dict[str, Any] | None = None
    ) -> tuple[int, bytes]:
        content = None if asked is None else msgspec.json.encode(asked)
        method, headers, bytes_max = "GET", None, BODY_BYTES_MAX
        if content is not None:
            method, headers, bytes_max = "POST", {"content-type": ANSWER}, TOKENS_BYTES_MAX
        async with asyncio.timeout(timeout_s):
            async with self._client.stream(
                method, url, content=content, headers=headers
            ) as response:
                return response.status_code, await _bounded(response, bytes_max)

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
        silence = Silence(now, self.begins, self.goes_on)
        first_s = self.begins.seconds(len(body))
        url = self._options.url + path + self._query
        async with (
            silence,
            asyncio.timeout_at(min(end_s, now() + first_s)) as bound,
            self._client.stream("POST", url, content=body, headers=_JSON | headers) as response,
        ):
            await self._check(response)
            async for data in response.aiter_raw():
                heard()
                silence.broken()
                for event in reader.feed(data):
                    wanted = wanted and take(event)
                wait_s = self.goes_on.seconds() if wanted else TAIL_WAIT_S
                bound.reschedule(min(end_s, now() + wait_s))

    async def whole(
        self, path: str, body: bytes, *, end_s: float, headers: dict[str, str]
    ) -> bytes:
        """Send a request and get its answer in one piece.

        Raises `JobRefused`, TimeoutError or an error of the connection.
        """
        now, wait_s = asyncio.get_running_loop().time(), self._options.first_byte_timeout_s
        async with asyncio.timeout_at(min(end_s, now + wait_s)):
            async with self._client.stream(
                "POST", self._options.url + path, content=body, headers=_JSON | headers
            ) as response:
                await self._check(response, ANSWER)
                return await _bounded(response, BODY_BYTES_MAX)

    async def close(self) -> None:
        await self._client.aclose()

    async def _check(self, response: httpx2.Response, kind: str = EVENT_STREAM) -> None:
        """Accept only a stream of events, or another `kind`; raises `JobRefused`."""
        if self.told_head is not None:
            self.told_head(response.status_code, response.headers)
        if response.status_code != httpx2.codes.OK:
            body = await _bounded(response, ERROR_BYTES_MAX)
            raise refusal_of(response.status_code, body, key=self._options.key)
        if not response.headers.get("content-type", "").startswith(kind):
            raise JobRefused("bad_job", f"the server answered without {kind}")


_JSON = {"content-type": ANSWER, "accept": EVENT_STREAM}


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
    inner = row.get("architecture")
    told = [row.get(name) for name in ("abilities", "capabilities")]
    told.append(inner.get("input_modalities") if isinstance(inner, dict) else None)
    words = {str(word) for words in told if isinstance(words, list) for word in words}
    sees = not words.isdisjoint(("vision", "image", "multimodal"))
    adapters = [name for name, each in known.items() if each.get("parent") == model]
    if len(adapters) > ADAPTERS_MAX:
        raise ModelError(f"--url: the server has {len(adapters)} adapters, {ADAPTERS_MAX} at most")
    return Listed(window, str(row.get("owned_by", "")), sees, tuple(adapters))
