"""A client that keeps all that a server says: bytes, order and ends, on plain sockets."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.recorded.case import ALL, KEY, Case
from tests.support.loopback import HOST

ANSWER_S_MAX = 60.0
READ_BYTES = 1 << 16
END_OF_HEAD = b"\r\n\r\n"
NO_BODY = ("204", "304")
KEPT, CLOSED = "kept", "closed"
# Answered at once, without a key and without a record.
PROBE = b"OPTIONS /v1/models HTTP/1.1\r\nhost: sluice\r\n\r\n"
PROBE_ANSWER = b"HTTP/1.1 200 "


class Ended(ConnectionError):
    """The server closed the connection before the answer was whole; `rest` is what came."""

    def __init__(self, rest: bytes) -> None:
        super().__init__("the connection ended")
        self.rest = rest


@dataclass
class Told:
    """One answer. `framing` says how its body ends, `interim` what came before it."""

    line: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    framing: str = "none"
    body: bytes = b""
    interim: list[str] = field(default_factory=list)

    def header(self, name: str) -> str:
        """The first of this name; empty without one."""
        return next((value for each, value in self.headers if each.lower() == name), "")


@dataclass
class Heard:
    """All that came of a case, and what became of its connection."""

    answers: list[Told] = field(default_factory=list)
    connection: str = ""
    rest: bytes = b""


class Line:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=ANSWER_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = b""

    def send(self, data: bytes) -> None:
        """All of it, unless the server has gone."""
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(data)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def read(
        self,
        *,
        headless: bool = False,
        on_piece: Callable[[], bool],
        on_interim: Callable[[], None] = lambda: None,
    ) -> Told:
        """One answer, whole; `on_piece` is called for each piece of a body in chunks, and ends the
        reading by False. Raises `Ended`.
        """
        told = Told()
        while True:
            line, *lines = self._until(END_OF_HEAD).decode("latin-1").split("\r\n")
            if not line.startswith("HTTP/1.1 1"):
                break
            told.interim.append("\r\n".join([line, *lines]))
            on_interim()
        told.line = line
        pairs = (each.partition(": ") for each in lines)
        told.headers = [(name, value) for name, _, value in pairs]
        if headless or line.split(" ")[1] in NO_BODY:
            return told
        if told.header("transfer-encoding") == "chunked":
            told.framing = "chunked"
            self._chunks(told, on_piece)
        elif told.header("content-length"):
            told.framing = "length"
            told.body = self._exactly(int(told.header("content-length")))
        else:
            told.framing = "close"
            told.body = self.rest()
        return told

    def fate(self) -> tuple[str, bytes]:
        """Whether the connection can be used on, and what came that nobody asked for."""
        if self._ended():
            return CLOSED, self._taken()
        self.send(PROBE)
        try:
            answer = self._until(END_OF_HEAD)
        except Ended as ended:
            return CLOSED, ended.rest
        place = answer.rfind(PROBE_ANSWER)
        return KEPT, answer if place < 0 else answer[:place]

    def rest(self) -> bytes:
        """All that comes until the server closes."""
        with contextlib.suppress(ConnectionError):
            while data := self._socket.recv(READ_BYTES):
                self._held += data
        return self._taken()

    def _chunks(self, told: Told, on_piece: Callable[[], bool]) -> None:
        while size := int(self._until(b"\r\n"), 16):
            told.body += self._exactly(size + 2)[:-2]
            if not on_piece():
                told.framing = "left"
                return
        self._until(b"\r\n")

    def _ended(self) -> bool:
        """Whether the server has closed by now, without waiting for it."""
        if self._held:
            return False
        self._socket.setblocking(False)
        try:
            self._held = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True
        finally:
            self._socket.settimeout(ANSWER_S_MAX)
        return not self._held

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._held:
            self._more()
        found, _, self._held = self._held.partition(mark)
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._held) < size:
            self._more()
        found, self._held = self._held[:size], self._held[size:]
        return found

    def _more(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            raise Ended(self._taken())
        self._held += data

    def _taken(self) -> bytes:
        held, self._held = self._held, b""
        return held


class Client:
    """Plays cases one after the other; those that allow it share a connection while it is kept."""

    def __init__(self, port: int, keys: Mapping[str, str], told: Path) -> None:
        self._port = port
        self._keys = keys
        self._told = told
        self._line: Line | None = None
        self._teller = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def close(self) -> None:
        """Hang up."""
        self._teller.close()
        if self._line is not None:
            self._line.close()

    def play(self, case: Case) -> list[Heard]:
        """Send a case and hear what comes: of the case itself, and of one beside it."""
        beside = None if case.beside is None else _Beside(self, case.beside)
        line = self.line(case)
        heard = Heard()
        try:
            self._exchange(line, case, heard)
        except Ended as ended:
            heard.connection, heard.rest = CLOSED, ended.rest
        except TimeoutError as error:
            line.close()
            answers = len(heard.answers)
            raise AssertionError(f"{case.name}: nothing more after {answers} answers") from error
        else:
            if case.leaves is not None:
                heard.connection = "left"
            else:
                heard.connection, heard.rest = line.fate()
        if heard.connection != KEPT or case.fresh:
            line.close()
        else:
            self._line = line
        return [heard, *([] if beside is None else [beside.end()])]

    def line(self, case: Case) -> Line:
        """The kept connection, or another."""
        if case.fresh or self._line is None:
            return Line(self._port)
        line, self._line = self._line, None
        return line

    def filled(self, piece: bytes) -> bytes:
        """With the secrets of keys in their places."""
        return KEY.sub(lambda found: self._keys[found[1].decode()].encode(), piece)

    def tell(self, case: Case, read: int) -> None:
        """Report to the scripted nodes."""
        self._teller.sendto(f"{case.name}:{read}".encode(), str(self._told))

    def _exchange(self, line: Line, case: Case, heard: Heard) -> None:
        first, *others = map(self.filled, case.pieces)
        line.send(first)
        read = 0

        def send_next() -> None:
            if others:
                line.send(others.pop(0))

        while others and not case.waits:
            send_next()

        def on_piece() -> bool:
            nonlocal read
            read += 1
            # Who leaves asks for no more, so that nothing more is made.
            if case.told and read != case.leaves:
                self.tell(case, read)
            return read != case.leaves

        while case.answers == ALL or len(heard.answers) < case.answers:
            if heard.answers:
                send_next()
            heard.answers.append(
                line.read(headless=case.headless, on_piece=on_piece, on_interim=send_next)
            )


class _Beside:
    """A case that is under way while another is played."""

    def __init__(self, client: Client, case: Case) -> None:
        self._client, self._case = client, case
        self._line = Line(client._port)
        self._line.send(client.filled(case.pieces[0]))
        # Its first piece has come: it is under way for certain.
        self._told = self._line.read(on_piece=lambda: False)

    def end(self) -> Heard:
        """Let it end, and hear the rest."""
        self._client.tell(self._case, 1)
        self._line._chunks(self._told, lambda: True)
        self._told.framing = "chunked"
        connection, rest = self._line.fate()
        self._line.close()
        return Heard([self._told], connection, rest)
