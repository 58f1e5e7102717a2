"""Django behind bounds, for pages and `/api`: bodies, requests at once, and slow readers.

Of each one address gets its share, so that no one can keep all others out, and more while the rest
is free.
Django itself writes a body of any size to disk before a view may say no, starts a thread and opens
a connection to PostgreSQL for each request, and waits for ever for who does not read.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext

from django.conf import settings

from controlplane.core.errors.edge import EdgeError, body_late, body_too_large, busy
from controlplane.kernel.bytes_budget import BytesBudget, Portion
from controlplane.kernel.keys.scopes import address_counted, caller_address
from controlplane.kernel.shares import is_over_share, lent_of, share_of
from controlplane.slow_readers import BufferedAnswer, Message, PacedSend, ReaderGone, Send

Receive = Callable[[], Awaitable[Message]]

BODY_BYTES_MAX = 1 << 20
# Forms whose text is YAML: encoded it takes up to three times as much, as the settings say.
FORM_PREFIXES = ("/configuration/", "/routing/", "/slos/")
BODY_S_MAX = 30.0
# Of all bodies together, without the first part of each, so that small ones always fit.
BODIES_BYTES_MAX = 64 << 20
SMALL_BYTES = 64 << 10
# Of all answers that wait for their clients, without the first part of each.
ANSWERS_BYTES_MAX = 64 << 20
WAITING_MAX = 256
WAIT_S_MAX = 10.0
# Each check of a password keeps a core busy for about half a second.
SIGN_INS_AT_ONCE_MAX = 2
SIGN_INS_WAITING_MAX = 32
SIGN_IN_PREFIXES = ("/sign-in", "/setup/", "/confirm", "/invitation/", "/account/password")


class _Owner:
    """One address: how many requests of it have a place, and how many have one or wait."""

    def __init__(self) -> None:
        self.placed = self.here = 0


class Gate:
    """So many at once; others wait, so many of them and so long. An address has its share of both.

    Up to `lent_max` places are given beyond shares, where no one within theirs waits; what waits is
    held to shares once half of all that may be here is.
    """

    def __init__(self, at_once_max: int, waiting_max: int, *, lent_max: int) -> None:
        self._at_once_max = at_once_max
        self._share = share_of(at_once_max)
        self._lent_max = lent_max
        self._placed = 0
        self._here = 0
        self._here_max = at_once_max + waiting_max
        self._owners: dict[str, _Owner] = {}
        # In the order of their coming.
        self._waiting: dict[asyncio.Future[None], _Owner] = {}

    @property
    def places(self) -> tuple[int, int]:
        """Those given, and all."""
        return self._placed, self._at_once_max

    @asynccontextmanager
    async def entered(self, address: str) -> AsyncIterator[None]:
        """A place for as long as the block lasts; raises `EdgeError` (503)."""
        with self._present(address) as owner, self._in_line(owner) as turn:
            try:
                async with asyncio.timeout(WAIT_S_MAX):
                    await turn
            except TimeoutError:
                raise busy() from None
            yield

    @contextmanager
    def _present(self, address: str) -> Iterator[_Owner]:
        owner = self._owners.get(address) or _Owner()
        total = self._here + 1
        if total > self._here_max or is_over_share(owner.here + 1, total, self._here_max):
            raise busy()
        self._owners[address] = owner
        self._here += 1
        owner.here += 1
        try:
            yield owner
        finally:
            self._here -= 1
            owner.here -= 1
            if not owner.here:
                del self._owners[address]

    @contextmanager
    def _in_line(self, owner: _Owner) -> Iterator[asyncio.Future[None]]:
        """Done once there is a place, which is given back at the end."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = owner
        self._let_in()
        try:
            yield turn
        finally:
            if self._waiting.pop(turn, None) is None:
                owner.placed -= 1
                self._placed -= 1
                self._let_in()

    def _let_in(self) -> None:
        while self._placed < self._at_once_max and (turn := self._next()) is not None:
            owner = self._waiting.pop(turn)
            owner.placed += 1
            self._placed += 1
            turn.set_result(None)

    def _next(self) -> asyncio.Future[None] | None:
        """Who is next, of those who still wait: whoever is within the share, or else the first."""
        waiting = [(turn, owner) for turn, owner in self._waiting.items() if not turn.done()]
        within = (turn for turn, owner in waiting if owner.placed < self._share)
        lent = waiting[0][0] if waiting and self._placed < self._lent_max else None
        return next(within, lent)


class BoundedPages:
    """An ASGI application around Django's."""

    def __init__(self, app: Callable[..., Awaitable[None]], *, at_once_max: int) -> None:
        self._app = app
        self._all = Gate(at_once_max, WAITING_MAX, lent_max=lent_of(at_once_max))
        # They end soon, so that all places may be lent.
        self._sign_ins = Gate(
            SIGN_INS_AT_ONCE_MAX, SIGN_INS_WAITING_MAX, lent_max=SIGN_INS_AT_ONCE_MAX
        )
        self.bodies = BytesBudget(bytes_max=BODIES_BYTES_MAX, small_bytes=SMALL_BYTES)
        self.answers = BytesBudget(bytes_max=ANSWERS_BYTES_MAX, small_bytes=SMALL_BYTES)

    @property
    def places(self) -> tuple[int, int]:
        """Requests that have a place, each with its connection to PostgreSQL, and how many may."""
        return self._all.places

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request; its place is free again before a slow client has read all."""
        peer = (scope.get("client") or ("",))[0]
        address = address_counted(caller_address(peer, scope["headers"], settings.TRUSTED_PROXIES))
        answer = BufferedAnswer(PacedSend(send), self.answers.portion(address))
        try:
            async with (
                self._body(scope, receive, address) as body,
                self._sign_in_gate(scope, address),
                self._all.entered(address),
            ):
                await self._app(scope, _replayed(body, receive), answer.put)
            await answer.flush()
        except ReaderGone:
            return
        except EdgeError as error:
            await _refuse(error, scope["path"], send)
        finally:
            answer.drop()

    def _sign_in_gate(self, scope: Message, address: str) -> AbstractAsyncContextManager[None]:
        checks = scope["method"] == "POST" and scope["path"].startswith(SIGN_IN_PREFIXES)
        return self._sign_ins.entered(address) if checks else nullcontext()

    @asynccontextmanager
    async def _body(self, scope: Message, receive: Receive, address: str) -> AsyncIterator[bytes]:
        """The whole body, in memory for as long as the block lasts; raises `EdgeError`."""
        is_form = scope["path"].startswith(FORM_PREFIXES)
        bytes_max = settings.DATA_UPLOAD_MAX_MEMORY_SIZE if is_form else BODY_BYTES_MAX
        if _told_length(scope) > bytes_max:
            raise body_too_large(bytes_max)
        portion = self.bodies.portion(address)
        try:
            try:
                async with asyncio.timeout(BODY_S_MAX):
                    body = await _collect(receive, portion, bytes_max)
            except TimeoutError:
                raise body_late(BODY_S_MAX) from None
            yield body
        finally:
            portion.free()


async def _collect(receive: Receive, portion: Portion, bytes_max: int) -> bytes:
    parts = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ReaderGone
        part = message.get("body", b"")
        fits = portion.grow(len(part))
        if portion.size > bytes_max:
            raise body_too_large(bytes_max)
        if not fits:
            raise busy()
        parts += part
        more = message.get("more_body", False)
    return bytes(parts)


def _told_length(scope: Message) -> int:
    """What the client says the body has; 0 where it says nothing."""
    told = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(told) if told.isdigit() else 0


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once more, then what the server says."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return waiting.pop() if waiting else await receive()

    return next_message


async def _refuse(error: EdgeError, path: str, send: Send) -> None:
    body, kind = error.body(path)
    headers = {**error.headers, "content-type": kind, "content-length": str(len(body))}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
