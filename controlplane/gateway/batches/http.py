"""`/v1/files` and `/v1/batches` in OpenAI's shapes: who may ask, for what, within which bounds."""

from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, Literal
from urllib.parse import parse_qs

import msgspec
from msgspec import Meta

from controlplane.gateway.app_state import AppState
from controlplane.gateway.batches.uploads import Upload
from controlplane.gateway.bounds import within
from controlplane.gateway.call import Call, ClientGone
from controlplane.gateway.http.exchange import Exchange
from controlplane.gateway.openai.parse import parse_body
from controlplane.gateway.ports import LedgerAway
from controlplane.gateway.ports_contents import BatchQuestion
from controlplane.gateway.refusal import NO_RETRY, Refusal, bad_field, over_share
from controlplane.gateway.s1_admission.authenticate import authenticate, check_scopes
from controlplane.gateway.s1_admission.body import LimitsCheck, read_body
from controlplane.gateway.s1_admission.hold import ledger_away
from controlplane.gateway.s1_admission.limits import check_requests
from controlplane.gateway.tasks.extras import unknown
from controlplane.kernel.ids import new_request_id, public_id

PATHS = ("/v1/files", "/v1/batches")
UPLOAD_S_MAX = 600.0
RETRY_S = 5
# Of one project: its files, those with results among them, and its batches that are not over.
FILES_MAX, FILES_BYTES_MAX, OPEN_MAX = 1_000, 8 << 30, 100
# How many are listed unless more are asked for, and at most.
LISTED = {"files": (10_000, 10_000), "list": (20, 100)}

_Text = Annotated[str, Meta(max_length=512, pattern="^[^\0]*$")]


class BatchRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/batches`."""

    input_file_id: _Text
    endpoint: Literal[
        "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"
    ]  # fmt: skip
    completion_window: Literal["24h"]
    metadata: Annotated[dict[_Text, _Text], Meta(max_length=16)] | None = None


_batch = msgspec.json.Decoder(BatchRequest)


class BatchesApi:
    """One request of a key for the files and batches of its project; raises `Refusal`."""

    def __init__(self, call: Call, exchange: Exchange, state: AppState) -> None:
        self.key = authenticate(call, state.keys)
        check_scopes(call, self.key, "batches", state.places)
        self._call, self._exchange, self._state = call, exchange, state

    async def answer(self) -> bytes | AsyncGenerator[bytes]:
        """JSON, or the bytes of a file; raises `Refusal`, `ClientGone`."""
        method, path = self._exchange.method, self._exchange.path
        try:
            match method, *path.removeprefix("/v1/").split("/"):
                case "POST", "files":
                    return await self._upload()
                case "POST", "batches":
                    return await self._create()
                case "GET", "files" | "batches" as kind:
                    return await self._list("files" if kind == "files" else "list")
                case "GET", "files", name:
                    return await self._one("files", name)
                case "GET", "files", name, "content":
                    await self._one("files", name)
                    return self._content(name)
                case "DELETE", "files", name:
                    if await self._ask("forget", id=name, rows_max=1) == b"null":
                        raise _missing(name)
                    return msgspec.json.encode({"id": name, "object": "file", "deleted": True})
                case "GET", "batches", name:
                    return await self._one("list", name)
                case "POST", "batches", name, "cancel":
                    return _cancelled(await self._one("list", name, cancel=True))
        except LedgerAway as error:
            raise ledger_away() from error
        raise unknown(path, method)

    async def _ask(self, question: BatchQuestion, **facts: object) -> bytes:
        return await self._state.batches.ask(question, project=self.key.project, **facts)

    async def _one(self, question: BatchQuestion, name: str, **facts: object) -> bytes:
        found = await self._ask(question, id=name.replace("\0", ""), limit=1, **facts)
        if found == b"[]":
            raise _missing(name)
        return found[1:-1]

    async def _list(self, question: Literal["files", "list"]) -> bytes:
        asked = parse_qs(self._exchange.query.decode("latin-1"))
        told = {name: asked[name][0].replace("\0", "") for name in asked}
        usual, most = LISTED[question]
        limit = told.pop("limit", str(usual))
        if not limit.isdecimal() or not 1 <= int(limit) <= most:
            raise bad_field("limit", f"'limit' must be a number from 1 to {most}.")
        facts = {name: told[name] for name in ("after", "order", "purpose") if name in told}
        found = msgspec.json.decode(await self._ask(question, limit=int(limit) + 1, **facts))
        page = found[: int(limit)]
        ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {}
        more = {"has_more": len(found) > len(page)}
        return msgspec.json.encode({"object": "list", "data": page} | ends | more)

    async def _content(self, name: str) -> AsyncGenerator[bytes]:
        told = await self._ask("read", id=name, after=0)
        while told != b"null":
            read = msgspec.json.decode(told)
            yield read["data"].encode()
            told = await self._ask("read", id=name, after=read["upto"])

    async def _create(self) -> bytes:
        portion = self._state.bodies.portion(self.key.organization)
        check = LimitsCheck(partial(check_requests, self.key, self._state.limiter))
        try:
            body = await read_body(
                self._call, self._exchange, portion, check, seconds_max=self._state.body_s
            )
            asked, _ = parse_body(body, _batch)
        finally:
            portion.free()
        if self._state.keys.recheck(self.key.key_id) is None:
            raise bad_field(None, "A session of the Playground does not live as long as a batch.")
        made = await self._ask(
            "create",
            id=new_id("batch"),
            file=asked.input_file_id,
            key_id=self.key.key_id,
            key_label=self.key.label,
            endpoint=asked.endpoint,
            metadata=asked.metadata,
            open_max=OPEN_MAX,
        )
        if made == b"false":
            raise _too_many("batches in progress")
        if made == b"null":
            raise _missing(asked.input_file_id, "input_file_id")
        return made

    async def _upload(self) -> bytes:
        """Take in a file; what is here of one that fails is swept away later."""
        state = self._state
        if state.uploads.locked():
            raise over_share("uploads", retry_after_s=RETRY_S)
        async with state.uploads:
            try:
                return await within(UPLOAD_S_MAX, self._take_in(new_id("file")))
            except TimeoutError as error:
                message = f"The file did not arrive within {UPLOAD_S_MAX:.0f} s."
                raise Refusal(408, "request_timeout", message) from error

    async def _take_in(self, file: str) -> bytes:
        content_type = self._call.header(b"content-type") or ""
        upload, parts = Upload(content_type, self._state.batch_file_bytes), 0
        bounds = {"files_max": FILES_MAX, "bytes_max": FILES_BYTES_MAX}
        owner = self.key.organization
        if await self._ask("upload", id=file, organization=owner, **bounds) == b"null":
            raise _too_many("files")
        more_body = True
        while more_body:
            data = await self._exchange.more()
            # Of what is here by now; what comes while it is kept is told of by the next turn.
            more_body = self._exchange.more_body
            if self._call.gone:
                raise ClientGone
            for part in upload.feed(data):
                parts += 1
                await self._ask("part", id=file, number=parts, data=part)
        if upload.fields.get("purpose") != "batch":
            raise bad_field("purpose", "'purpose' must be 'batch'.")
        if not (upload.ended and upload.size):
            raise bad_field("file", "There is no file, or it is empty or cut.", "empty_file")
        facts = {"bytes": upload.size, "kept_s": self._state.batch_files_s}
        return await self._ask("uploaded", id=file, filename=upload.filename, **facts)


def new_id(prefix: str) -> str:
    return public_id(prefix, new_request_id().hex())


def _missing(name: str, param: str = "id") -> Refusal:
    return Refusal(404, "not_found", f"There is no '{name[:100]}'.", param=param, headers=NO_RETRY)


def _too_many(what: str) -> Refusal:
    message = f"This project has as many {what} as it may have."
    return Refusal(429, "too_many_files_or_batches", message, headers=NO_RETRY)


def _cancelled(batch: bytes) -> bytes:
    status = msgspec.json.decode(batch)["status"]
    if status not in ("cancelling", "cancelled"):
        message = f"A batch with the status '{status}' cannot be cancelled."
        raise Refusal(409, "batch_over", message, headers=NO_RETRY)
    return batch
