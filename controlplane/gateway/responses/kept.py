"""Responses that are kept: what went before one, its run without its client, its end; and
`/v1/responses/{id}` and what is below it: read, cancelled and deleted.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta

from controlplane.gateway.after.said import said_in
from controlplane.gateway.app_state import AppState
from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call, ClientGone
from controlplane.gateway.http.exchange import Exchange, Incoming
from controlplane.gateway.openai.parse import named_error
from controlplane.gateway.policies.check import INLINE_BYTES_MAX, read_following
from controlplane.gateway.ports_contents import Contents, ContentsAway
from controlplane.gateway.progress import Out, Progress
from controlplane.gateway.refusal import NO_RETRY, Refusal, bad_field, unavailable
from controlplane.gateway.responses.request import parse
from controlplane.gateway.responses.writer import ResponseWriter
from controlplane.gateway.results import Asked
from controlplane.gateway.s1_admission.admit import read_ask
from controlplane.gateway.s1_admission.helpers.offload import is_large
from controlplane.gateway.s1_admission.limits import counted_key
from controlplane.gateway.s1_admission.schema import (
    PREVIOUS,
    plan_known,
    read_schema,
    read_schema_beside,
)
from controlplane.gateway.snapshot import KeyRecord
from controlplane.gateway.tasks.extras import EXTRAS, Extra
from controlplane.kernel.clock import wall_us
from controlplane.kernel.contents.kept import KeptContent
from controlplane.kernel.ids import public_id, uuid_of
from controlplane.kernel.shares import is_over_share

PREFIX = "resp"
RETRY_S = 1
# Responses that run in one gateway without their clients.
BACKGROUND_MAX = 64
# How often each of them looks whether it was cancelled or deleted.
CHECK_S = 1.0
# Between tries to keep its end, that nobody waits for.
PAUSES_S = (1.0,) * 10
STORED, NOT_STORED = b'"store":true', b'"store":false'

Found = TypeVar("Found")
log = logging.getLogger(__name__)
PATH = "/v1/responses"
ID = re.compile(rf"^{PATH}/[^/]{{1,64}}(?=/|$)")
US_PER_S = 1_000_000
DIED = {"code": "server_error", "message": "The gateway that ran it has ended."}


class KeptResponse:
    """A `shape.Keeper` of one response; in the background it has a `_row` while it runs."""

    def __init__(self, run: Progress) -> None:
        self._run = run
        self._state = run.state
        self._stores = False
        self._row: KeptContent | None = None
        self._watch: asyncio.Task[None] | None = None

    async def read(self, exchange: Incoming, key: KeyRecord) -> Asked:
        call, state = self._run.call, self._state
        self._exchange, self._key = exchange, key
        keeps = state.keys.snapshot().projects[key.project].keeps_days > 0
        parsed = partial(parse, own_id=call.request.hex(), keeps=keeps)
        asked = await read_ask(call, exchange, parsed, state, key=key)
        # Whatever comes now, what it takes of the memory is given back.
        self._run.trail.asked = asked
        if PREVIOUS in asked.ask.echo:
            asked = await self._follow(asked, parsed)
        if kept := asked.ask.echo.pop("kept"):
            self._stores = True
            asked = msgspec.structs.replace(asked, body=kept)
        return asked

    async def admitted(self, out: Out) -> None:
        run, asked = self._run, self._run.trail.asked
        if asked is None or not asked.ask.echo["background"]:
            return
        self._take_place()
        # It has no tokens yet.
        writer = ResponseWriter(run.call.request, asked.ask, token_text=lambda _: ("", b""))
        row = self._content(writer.response("in_progress"))
        await reached(self._state.contents.keep_now(row))
        self._row = row
        if run.call.gone:
            raise ClientGone
        if asked.ask.stream:
            self._exchange.on_gone = None
        else:
            out.end(writer.response("queued"), run.trail)
            out.detach()
        self._watch = self._state.spawn(self._look())

    async def completed(self, last: bytes) -> bytes:
        asked = self._run.trail.asked
        if asked is None or not self._stores:
            return last
        response = last
        if asked.ask.stream:
            event = msgspec.json.decode(last.rstrip().rpartition(b"\ndata: ")[2])
            response = msgspec.json.encode(event["response"])
        kept, self._row = await self._keep(self._content(response)), None
        if kept is not False:
            self._forget()
        if kept is None:
            # Whoever cancelled it was told so, and nobody is told otherwise.
            self._run.call.client_left()
            raise ClientGone
        if kept:
            return last
        echoed: bytes = asked.ask.echo["request"]
        return last.replace(echoed, echoed.replace(STORED, NOT_STORED, 1))

    def left(self) -> None:
        self._state.background.pop(self._run.call.request, None)
        if self._watch is not None:
            self._watch.cancel()
        if self._row is not None:
            self._forget()
            self._state.spawn(self._fail(self._row))

    async def _follow(self, asked: Asked, parsed: partial[Ask]) -> Asked:
        """The request behind what was said before it."""
        call, key, state = self._run.call, self._key, self._state
        earlier = await _earlier(state.contents, key.project, asked.ask.echo[PREVIOUS])
        snapshot = asked.snapshot
        project, masks = snapshot.projects[key.project], asked.ask.masks
        policies, salt = project.policies, project.salt
        read = partial(
            read_following, parse=parsed, earlier=earlier, masks=masks, policies=policies, key=salt
        )
        bodies = asked.body, earlier.body, earlier.response
        looks = policies is not None and policies.reads
        if any(map(is_large, bodies)) or (looks and sum(map(len, bodies)) > INLINE_BYTES_MAX):
            offload, tenant = state.offload, key.organization
            ask = await read_schema_beside(call, asked.body, read, offload, tenant=tenant)
        else:
            ask = read_schema(call, asked.body, read)
        ask, plan = await plan_known(call, ask, key=key, snapshot=snapshot, state=state)
        counted = counted_key(key, ask, plan, snapshot)
        return msgspec.structs.replace(asked, key=counted, ask=ask, plan=plan)

    def _take_place(self) -> None:
        running, organization = self._state.background, self._key.organization
        own, total = 1 + sum(each == organization for each, _ in running.values()), len(running) + 1
        if total > BACKGROUND_MAX or is_over_share(own, total, BACKGROUND_MAX):
            message = f"Too many background responses are in progress. Try again in {RETRY_S} s."
            raise unavailable("server_is_overloaded", message, retry_after_s=RETRY_S)
        running[self._run.call.request] = organization, self._run.call

    def _content(self, response: bytes) -> KeptContent:
        said = said_in(self._run, self._key)
        if said is None:
            raise AssertionError("its project keeps what is said")
        status = msgspec.json.decode(response)["status"]
        asked = self._run.trail.asked
        if asked is not None and asked.ask.masks is not None:
            response = asked.ask.masks.hide(response)
        return msgspec.structs.replace(said, status=status, response=response)

    def _forget(self) -> None:
        """It is kept, or was deleted: it is not to be kept once more, as other requests are."""
        trail = self._run.trail
        if trail.asked is not None:
            trail.asked = msgspec.structs.replace(trail.asked, body=b"")

    async def _keep(self, content: KeptContent) -> bool | None:
        """Keep how it ended: False where that cannot be, None where it was cancelled or deleted."""
        contents = self._state.contents
        for pause_s in PAUSES_S if self._row else (0.0,):
            with suppress(ContentsAway):
                if self._row is None:
                    await contents.keep_now(content)
                elif not await contents.keep_end(content):
                    found = await contents.read(content.project, content.request)
                    # Else it is kept since a try of which no answer came.
                    return None if found is None or found.status == "cancelled" else True
                return True
            await asyncio.sleep(pause_s)
        log.error("response %s is not stored", public_id(PREFIX, content.request.hex()))
        return False

    async def _is_wanted(self) -> bool:
        row = await self._state.contents.read(self._key.project, self._run.call.request)
        return row is not None and row.status == "in_progress"

    async def _look(self) -> None:
        """Cancel it once that was asked for, at whichever gateway."""
        wanted = True
        while wanted:
            await asyncio.sleep(CHECK_S)
            with suppress(ContentsAway):
                wanted = await self._is_wanted()
        self._run.call.client_left()

    async def _fail(self, row: KeptContent) -> None:
        refusal = self._run.refusal
        code = (refusal.code if refusal else None) or "server_error"
        error = {"code": code, "message": refusal.message if refusal else "The gateway stopped."}
        await self._keep(ended(row, status="failed", error=error))


def ended(content: KeptContent, **told: Any) -> KeptContent:
    """A response that came to nothing: its `status`, and its `error`, if any."""
    response = msgspec.json.encode(msgspec.json.decode(content.response) | told)
    return msgspec.structs.replace(content, status=told["status"], response=response)


async def reached(work: Awaitable[Found]) -> Found:
    """What is asked of the contents; raises `Refusal` (503)."""
    try:
        return await work
    except ContentsAway as error:
        message = "Stored responses are temporarily unavailable. Try again shortly."
        raise unavailable("contents_unavailable", message, retry_after_s=RETRY_S) from error


async def find(contents: Contents, project: str, response: str) -> KeptContent | None:
    """The stored response of this public id, where the project has it; raises `Refusal` (503)."""
    try:
        request = uuid_of(response, PREFIX).bytes
    except ValueError:
        return None
    kept = await reached(contents.read(project, request))
    return kept if kept is not None and kept.response else None


async def _earlier(contents: Contents, project: str, response: str) -> KeptContent:
    """The response that another follows; raises `Refusal` (400, 503)."""
    field, kept = "previous_response_id", await find(contents, project, response)
    if kept is None:
        message = f"Previous response with id '{response}' not found."
        raise bad_field(field, message, "previous_response_not_found")
    if kept.status == "in_progress":
        raise bad_field(field, f"Response '{response}' is in progress. Wait until it has ended.")
    return kept


class ListQuery(msgspec.Struct):
    """A part of a list, the last item first unless told otherwise."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str = ""


async def retrieve(call: Call, exchange: Exchange, state: AppState, key: KeyRecord) -> bytes:
    """The response as it is now; raises `Refusal`."""
    if _query(exchange).get("stream") == "true":
        message = "'stream' is not supported here. Ask again until the response has ended."
        raise bad_field("stream", message, "unsupported_parameter")
    return (await _found(exchange, state, key)).response


async def delete(call: Call, exchange: Exchange, state: AppState, key: KeyRecord) -> bytes:
    """Forget it, with its input; raises `Refusal`."""
    kept = await _found(exchange, state, key)
    if kept.status == "in_progress":
        raise bad_field(None, "The response is in progress. Cancel it first.")
    await reached(state.contents.delete(key.project, kept.request))
    told = {"id": public_id(PREFIX, kept.request.hex()), "object": "response", "deleted": True}
    return msgspec.json.encode(told)


async def cancel(call: Call, exchange: Exchange, state: AppState, key: KeyRecord) -> bytes:
    """Cancel one in the background, in whichever gateway; one that has ended stays as it is."""
    kept = await _found(exchange, state, key)
    if not msgspec.json.decode(kept.response)["background"]:
        raise bad_field(None, "Only a response with 'background': true can be cancelled.")
    if kept.status == "in_progress":
        kept = ended(kept, status="cancelled")
        if not await reached(state.contents.keep_end(kept)):
            kept = await _found(exchange, state, key)
        elif kept.request in state.background:
            state.background[kept.request][1].client_left()
    return kept.response


async def list_items(call: Call, exchange: Exchange, state: AppState, key: KeyRecord) -> bytes:
    """A page of the items that it answered; raises `Refusal`."""
    try:
        query = msgspec.convert(_query(exchange), ListQuery, strict=False)
    except msgspec.ValidationError as error:
        raise named_error(str(error)) from error
    kept = await _found(exchange, state, key)
    items = msgspec.json.decode(kept.body)["input"]
    if query.order == "desc":
        items.reverse()
    ids = [item["id"] for item in items]
    if query.after and query.after not in ids:
        raise bad_field("after", "'after' is the id of none of the items.")
    first = ids.index(query.after) + 1 if query.after else 0
    last = first + query.limit
    page, shown = items[first:last], ids[first:last] or [None]
    told = {"object": "list", "data": page, "first_id": shown[0], "last_id": shown[-1]}
    return msgspec.json.encode({**told, "has_more": last < len(ids)})


_SCOPE = "responses"
# By path, with `{id}` for that of a response, and by method.
ROUTES: dict[str, dict[str, Extra]] = {
    **{path: {"POST": extra} for path, extra in EXTRAS.items()},
    PATH + "/{id}": {"GET": (_SCOPE, retrieve), "DELETE": (_SCOPE, delete)},
    PATH + "/{id}/input_items": {"GET": (_SCOPE, list_items)},
    PATH + "/{id}/cancel": {"POST": (_SCOPE, cancel)},
}


async def _found(exchange: Exchange, state: AppState, key: KeyRecord) -> KeptContent:
    """The response, as failed where its gateway died; raises `Refusal` (404, 503)."""
    name = exchange.path.split("/")[3]
    kept = await find(state.contents, key.project, name)
    if kept is None:
        message = f"Response with id '{name}' not found."
        if not state.keys.snapshot().projects[key.project].keeps_days:
            message += " The project of this key does not keep content."
        raise Refusal(404, "response_not_found", message, headers=NO_RETRY)
    over_us = kept.started_us + (state.request_deadline_s + state.hold_grace_s) * US_PER_S
    is_over = kept.status == "in_progress" and wall_us() > over_us
    return ended(kept, status="failed", error=DIED) if is_over else kept


def _query(exchange: Exchange) -> dict[str, str]:
    return dict(parse_qsl(exchange.query.decode("latin-1")))
