"""Requests to addresses that people have written: never into our own network.

The address is looked up once and checked, and the connection goes to what was checked: a name that
changes its mind in between leads nowhere else. A proxy of the environment is asked to connect to
what was checked, too. Redirects are not followed.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from threading import Timer
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from django.conf import settings

from inference.tls import client_context

LOOK_UP_S_MAX = 3.0
# Names that their servers answer slowly hold threads of these alone, some 30 s each: the two
# senders that one organization may have begin 20 in that time.
LOOK_UPS_MAX = 32
CONNECT_S_MAX = 5.0
# From the connection's begin to the answer's end: a byte now and then must not hold a worker.
EXCHANGE_S_MAX = 10.0
# A proxy has a name of its own, which is looked up, too.
OUTBOUND_S_MAX = 2 * LOOK_UP_S_MAX + EXCHANGE_S_MAX
_PORTS = {"http": 80, "https": 443}
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
# Addresses of IPv4 in IPv6: a translator, or an old stack, leads to the one inside.
_NAT64, _COMPATIBLE = map(ipaddress.IPv6Network, ("64:ff9b::/96", "::/96"))
_look_ups = ThreadPoolExecutor(LOOK_UPS_MAX, "look-up")
# No name that a tenant wrote is looked up here, so that none holds up the way to all others.
_proxy_look_ups = ThreadPoolExecutor(LOOK_UPS_MAX, "look-up-proxy")


class NotReached(Exception):
    """There was no answer, or none is wanted from there; the words are for whoever wrote it."""


def outbound(
    method: str, url: str, *, headers: dict[str, str], private: bool, bytes_max: int,
    body: bytes | None = None,
) -> tuple[int, bytes]:  # fmt: skip
    """Status and first bytes of the answer of an http:// or https:// URL without a user name.

    `private` permits addresses inside networks. Raises NotReached.
    """
    parts = urlsplit(url)
    connection = _connection(parts, private=private)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    bound = Timer(EXCHANGE_S_MAX, connection.cut)
    try:
        bound.start()
        connection.connect()
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(bytes_max)
    except OSError as error:
        raise NotReached(f"no answer: {error}") from error
    # A path that is not ASCII; the error's words would tell of it.
    except (ValueError, http.client.InvalidURL):
        raise NotReached("the address is not allowed") from None
    except http.client.HTTPException as error:
        raise NotReached(f"no answer: {error}") from error
    finally:
        bound.cancel()
        connection.close()


def _connection(parts: SplitResult, *, private: bool) -> _Checked:
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    way = way_to(host, port, scheme=parts.scheme, private=private)
    return (_CheckedHttps if parts.scheme == "https" else _Checked)(host, port, way)


class WayOut(NamedTuple):
    """Where to connect; `ask` is for the proxy there, where it is one."""

    host: str
    port: int
    ask: bytes = b""

    def begin(self, wire: socket.socket) -> None:
        """Have the proxy connect; raises NotReached, OSError."""
        if not self.ask:
            return
        wire.sendall(self.ask)
        answer = http.client.HTTPResponse(wire, method="CONNECT")
        try:
            answer.begin()
        except http.client.HTTPException as error:
            raise NotReached("the proxy does not answer as one") from error
        finally:
            answer.close()
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            raise NotReached(f"the proxy answered {answer.status}")


def way_to(
    host: str, port: int, *, scheme: str, private: bool, look_ups: ThreadPoolExecutor | None = None
) -> WayOut:
    """The way to an address that is checked, through the proxy of the environment if it names one.

    Who may go into networks has names looked up by the proxy. Raises NotReached.
    """
    look_ups = look_ups or _look_ups
    proxy = _proxy(scheme, host)
    if proxy is None:
        return WayOut(public_address(host, port, private=private, look_ups=look_ups), port)
    if not private and not (settings.PROXY_RESOLVES and not _is_number(host)):
        host = public_address(host, port, private=False, look_ups=look_ups)
    proxy_port = proxy.port or _PORTS["http"]
    name = proxy.hostname or ""
    at = public_address(name, proxy_port, private=True, look_ups=_proxy_look_ups)
    return WayOut(at, proxy_port, _ask(proxy, host, port))


def _proxy(scheme: str, host: str) -> SplitResult | None:
    """What HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY say of a host; never of this machine."""
    named = getproxies()
    url = named.get(scheme) or named.get("all")
    if not url or host in LOCAL_HOSTS or proxy_bypass(host):
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        known = parts.scheme == "http" and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise NotReached("the proxy's URL must be http://HOST:PORT")
    return parts


def _ask(proxy: SplitResult, host: str, port: int) -> bytes:
    try:
        place = f"[{host}]:{port}" if ":" in host else f"{host.encode('idna').decode()}:{port}"
    except UnicodeError as error:
        raise NotReached(f"{host} is no name") from error
    if not place.isprintable() or " " in place:
        raise NotReached("the address is not allowed")
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
    if proxy.username is not None:
        known = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {b64encode(known.encode()).decode()}")
    return "\r\n".join([*lines, "", ""]).encode()


def _is_number(host: str) -> bool:
    """Whether it is an address, in whichever spelling, and not a name."""
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, ValueError):
        return False
    return True


def public_address(
    host: str, port: int, *, private: bool, look_ups: ThreadPoolExecutor = _look_ups
) -> str:
    """An address of the host; raises NotReached for one inside a network.

    Slow names hold the threads of `look_ups`.
    """
    looked_up = look_ups.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = looked_up.result(LOOK_UP_S_MAX)
    # A label that is too long is a UnicodeError.
    except (OSError, ValueError) as error:
        looked_up.cancel()
        raise NotReached(f"{host} cannot be resolved: {error}") from error
    address = str(found[0][4][0])
    if not private and not _is_public(address):
        raise NotReached(f"{host} resolves to a private address, {address}")
    return address


def _is_public(text: str) -> bool:
    """Whether it is an address of the internet, also where it stands for one of IPv4."""
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        if address in _COMPATIBLE or address.is_site_local:
            return False
        inner = address.sixtofour or address.ipv4_mapped
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None and not inner.is_global:
            return False
    return address.is_global and not address.is_multicast


class _Checked(http.client.HTTPConnection):
    """Connects to the address that was checked."""

    def __init__(self, host: str, port: int, way: WayOut) -> None:
        super().__init__(host, port, timeout=EXCHANGE_S_MAX)
        self._way = way
        self._wire: socket.socket | None = None

    def connect(self) -> None:
        self.sock = self._wire = socket.create_connection(self._way[:2], CONNECT_S_MAX)
        self._way.begin(self.sock)

    def cut(self) -> None:
        """End what is under way, from another thread; a connection that is over stays as it is."""
        if self._wire is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._wire, socket.SHUT_RDWR)


class _CheckedHttps(_Checked):
    def connect(self) -> None:
        """Connect, and let the other side prove its name."""
        super().connect()
        self.sock = self._wire = wire = client_context().wrap_socket(
            self.sock, server_hostname=self.host, do_handshake_on_connect=False
        )
        # Where it can be cut: a handshake may drip as well as an answer.
        wire.do_handshake()
