"""A lane to PostgreSQL: one connection of its own, one call of a prepared statement in flight.

Group commit without a timer: a source is asked for the next call as soon as the last is answered,
and batches by itself what arrived meanwhile. The lane reconnects by itself and reports what became
of every call; it knows nothing of money.
"""

import asyncio
from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Protocol

import msgspec
import structlog
from psycopg import Error, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.tasks import end

RECONNECT_S = 0.1
# A killed postmaster's socket still takes connections that no one will answer.
CONNECT_S_MAX = 2.0
FLIGHT_S_MAX = 6.0
WATCH_S = 0.5
LOG_AWAY_S = 5.0
# Sessions of a lane do not wait for the disk; a durable call is followed by a flush of its own.
SESSION = b"SET synchronous_commit = off"
BARRIER = b"barrier"
BARRIER_SQL = (
    b"SELECT set_config('synchronous_commit', 'on', true),"
    b" pg_logical_emit_message(true, 'sluice', '')"
)
# The server shuts down, or takes no writes any more: another host of the list may.
LEAVING = ("57P", "25006")
# PostgreSQL's internal_error, for a call that never came to it, and when the next is tried.
UNSENDABLE = "XX000"
UNSENT_RETRY_S = 0.2

log = structlog.get_logger(__name__)


def no_answer(_: bytes | None) -> None:
    """What is written needs no more care."""


class PreparedCall(msgspec.Struct, kw_only=True):
    """One call of a prepared statement; exactly one of the three ends is told how it went.

    It has failed, too, where its parameters cannot be made: they are when it is sent.
    `lost` means that the connection broke and the outcome is unknown: repeat what is idempotent.
    """

    statement: bytes
    parameters: Callable[[], list[bytes | None]]
    failed: Callable[[str, str], None]
    lost: Callable[[], None]
    answered: Callable[[bytes | None], None] = no_answer
    durable: bool = False


class Source(Protocol):
    """Where a lane's calls come from."""

    def connected(self) -> None:
        """A new connection stands; whatever must come before new work is next."""

    def next_call(self) -> PreparedCall | None:
        """The next call, or None when there is nothing to do."""


class PostgresLane:
    """Keeps one connection and feeds it from one source."""

    def __init__(
        self, name: str, conninfo: str, source: Source, statements: Mapping[bytes, bytes]
    ) -> None:
        self._name = name
        self._hosts = _by_host(conninfo)
        self._source = source
        self._statements = {**statements, BARRIER: BARRIER_SQL}
        self._wire: Wire | None = None
        self._task: asyncio.Task[None] | None = None
        self.known_down = True

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"lane {self._name}")

    @property
    def busy(self) -> bool:
        """Whether a call is in flight: neither answered, failed nor lost."""
        return self._wire is not None and self._wire.busy

    async def close(self) -> None:
        """Cut the connection; a call in flight is lost."""
        await end(self._task)

    def wake(self) -> None:
        """There is work: sent at the end of this turn of the loop, or when the line is free."""
        if self._wire is not None:
            self._wire.wake()

    async def _run(self) -> None:
        down_since = monotonic_s()
        logged_at = 0.0
        for host in cycle(self._hosts):
            try:
                async with asyncio.timeout(CONNECT_S_MAX):
                    connection = await _open(host, self._statements)
            except (Error, OSError, TimeoutError) as error:
                self.known_down = True
                if monotonic_s() - logged_at > LOG_AWAY_S:
                    logged_at = monotonic_s()
                    log.warning("postgres_away", lane=self._name, error=str(error).strip())
                await asyncio.sleep(RECONNECT_S)
                continue
            log.info("lane_connected", lane=self._name, away_s=round(monotonic_s() - down_since, 3))
            self.known_down = False
            await self._serve(connection)
            down_since = monotonic_s()
            log.warning("lane_lost", lane=self._name)
            await asyncio.sleep(RECONNECT_S)

    async def _serve(self, connection: pq.abc.PGconn) -> None:
        wire = self._wire = Wire(connection, self._source)
        try:
            self._source.connected()
            wire.wake()
            await wire.broken()
        finally:
            self._wire = None
            wire.close()


class Wire:
    """One established connection in pipeline mode, driven by the loop's readiness callbacks."""

    def __init__(self, connection: pq.abc.PGconn, source: Source) -> None:
        self._connection = connection
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._broken: asyncio.Future[None] = self._loop.create_future()
        self._call: PreparedCall | None = None
        self._sent_at = 0.0
        self._syncs = 0
        self._value: bytes | None = None
        self._answered = False
        self._error: tuple[str, str] | None = None
        self._waking = False
        self._socket = connection.socket
        self._loop.add_reader(self._socket, self._on_readable)

    @property
    def busy(self) -> bool:
        return self._call is not None

    async def broken(self) -> None:
        """Returns when the connection is of no more use."""
        while not self._broken.done():
            await asyncio.wait({self._broken}, timeout=WATCH_S)
            if self._call is not None and monotonic_s() - self._sent_at > FLIGHT_S_MAX:
                return

    def close(self) -> None:
        """Let go of the socket; a call in flight is lost."""
        self._break()
        self._connection.finish()
        call, self._call = self._call, None
        if call is not None:
            call.lost()

    def wake(self) -> None:
        """Send soon, so that all that arrives in this turn of the loop shares a batch."""
        if self._call is None and not self._waking:
            self._waking = True
            self._loop.call_soon(self._send_next)

    def _send_next(self) -> None:
        self._waking = False
        if self._call is not None or self._broken.done():
            return
        call = None
        try:
            call = self._source.next_call()
            parameters = call.parameters() if call else []
        except Exception as error:  # Process edge: what cannot be sent must not keep the rest.
            log.exception("call_not_made", statement=call and call.statement)
            if call is not None:
                call.failed(UNSENDABLE, repr(error))
            self._loop.call_later(UNSENT_RETRY_S, self.wake)
            return
        if call is None:
            return
        self._call = call
        self._value = None
        self._answered = False
        self._error = None
        self._sent_at = monotonic_s()
        connection = self._connection
        try:
            connection.send_query_prepared(call.statement, parameters)
            connection.pipeline_sync()
            self._syncs = 1
            if call.durable:
                connection.send_query_prepared(BARRIER, None)
                connection.pipeline_sync()
                self._syncs = 2
            self._flush()
        except Error:
            self._break()

    def _flush(self) -> None:
        if self._connection.flush():
            self._loop.add_writer(self._socket, self._on_writable)

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._socket)
        try:
            self._flush()
        except Error:
            self._break()

    def _on_readable(self) -> None:
        connection = self._connection
        try:
            connection.consume_input()
            while self._syncs and not connection.is_busy():
                result = connection.get_result()
                if result is not None:
                    self._take(result)
                elif connection.status == pq.ConnStatus.BAD:
                    # It is never busy and has no more results: it would spin here for ever.
                    self._break()
                    return
        except Error:
            self._break()

    def _take(self, result: pq.abc.PGresult) -> None:
        status = result.status
        if status == pq.ExecStatus.PIPELINE_SYNC:
            self._syncs -= 1
            if self._syncs == 0:
                self._finish()
        elif status == pq.ExecStatus.TUPLES_OK:
            # The first answer is the call's; the flush behind it has none that matters.
            if not self._answered:
                self._answered = True
                self._value = result.get_value(0, 0)
        elif self._error is None:
            state = result.error_field(pq.DiagnosticField.SQLSTATE) or b"XX000"
            self._error = (state.decode(), result.error_message.decode("utf-8", "replace").strip())

    def _finish(self) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        try:
            if self._error is None:
                call.answered(self._value)
            elif self._error[0].startswith(LEAVING):
                call.lost()
                self._break()
            else:
                call.failed(*self._error)
        finally:
            self._send_next()

    def _break(self) -> None:
        """Let go of the socket at once: libpq has closed it, and its number is free for others."""
        if not self._broken.done():
            self._broken.set_result(None)
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)


def _by_host(conninfo: str) -> list[str]:
    """One for each host, tried in turn: libpq would spend all the time on one that is silent."""
    told = conninfo_to_dict(conninfo)
    hosts, ports = (str(told.get(name) or "").split(",") for name in ("host", "port"))
    ports *= len(hosts) if len(ports) == 1 else 1
    pairs = zip(hosts, ports, strict=True)
    return [make_conninfo(conninfo, host=host, port=port) for host, port in pairs]


async def _open(conninfo: str, statements: Mapping[bytes, bytes]) -> pq.abc.PGconn:
    """A connection in pipeline mode with everything prepared; raises `psycopg.Error`, `OSError`."""
    connection = pq.PGconn.connect_start(conninfo.encode())
    try:
        await _connect(connection)
        connection.nonblocking = 1
        connection.enter_pipeline_mode()
        connection.send_query_params(SESSION, None)
        for name, query in statements.items():
            connection.send_prepare(name, query)
        connection.pipeline_sync()
        connection.flush()
        await _await_sync(connection)
    except BaseException:
        connection.finish()
        raise
    return connection


async def _connect(connection: pq.abc.PGconn) -> None:
    while True:
        status = connection.connect_poll()
        if status == pq.PollingStatus.OK:
            return
        if status == pq.PollingStatus.FAILED:
            raise ConnectionError(connection.get_error_message())
        await _ready(connection.socket, writing=status == pq.PollingStatus.WRITING)


async def _await_sync(connection: pq.abc.PGconn) -> None:
    while True:
        connection.consume_input()
        while not connection.is_busy():
            if connection.status == pq.ConnStatus.BAD:
                raise ConnectionError(connection.get_error_message())
            result = connection.get_result()
            if result is None:
                continue
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                return
            if result.status in (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.PIPELINE_ABORTED):
                raise ConnectionError(result.error_message.decode("utf-8", "replace"))
        await _ready(connection.socket, writing=False)


async def _ready(socket: int, *, writing: bool) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    if writing:
        loop.add_writer(socket, wake)
    else:
        loop.add_reader(socket, wake)
    try:
        await ready
    finally:
        loop.remove_writer(socket)
        loop.remove_reader(socket)
