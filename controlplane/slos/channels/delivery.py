"""How a message leaves: one signed POST to an address that is not inside our own network.

The address is looked up once and checked, and the connection goes to what was checked: a name that
changes its mind in between leads nowhere else. Redirects are not followed.
"""

from __future__ import annotations

import hmac
import http.client
import ipaddress
import socket
import ssl
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from threading import Timer
from urllib.parse import SplitResult, urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError

from controlplane.slos.checks import is_link

LOOK_UP_S_MAX = 3.0
# Names that their servers answer slowly hold threads of these alone, some 30 s each: the two
# senders that one organization may have begin 20 in that time.
LOOK_UPS_MAX = 32
CONNECT_S_MAX = 5.0
# From the connection's begin to the answer's end: a byte now and then must not hold a worker.
EXCHANGE_S_MAX = 10.0
DELIVERY_S_MAX = LOOK_UP_S_MAX + EXCHANGE_S_MAX
ANSWER_BYTES_MAX = 4_096
WEBHOOK, SLACK = "webhook", "slack"
SIGNATURE = "Sluice-Signature"
_PORTS = {"http": 80, "https": 443}
# Addresses of IPv4 in IPv6: a translator, or an old stack, leads to the one inside.
_NAT64, _COMPATIBLE = map(ipaddress.IPv6Network, ("64:ff9b::/96", "::/96"))
_look_ups = ThreadPoolExecutor(LOOK_UPS_MAX, "look-up")


class NotDelivered(Exception):
    """The other side did not take it; the words are for the page."""


def address_check(kind: str, address: str) -> None:
    """Return if messages may be sent there; raises ValidationError at `kind` or `address`."""
    if kind not in (WEBHOOK, SLACK):
        raise ValidationError({"kind": "Must be one of webhook, slack or email."})
    if not is_link(address):
        raise ValidationError({"address": "Must be a URL that begins with https:// or http://."})
    parts = urlsplit(address)
    if parts.username is not None:
        raise ValidationError(
            {
                "address": "Must not contain a user name or password: the "
                "signature proves the sender."
            }
        )
    if parts.scheme == "http" and not settings.WEBHOOKS_PRIVATE:
        raise ValidationError({"address": "https:// only."})


def signing_secret(channel_id: uuid.UUID) -> str:
    """What the receiver checks signatures with; made from the channel's id, so it is not stored."""
    return hmac.new(settings.WEBHOOK_KEY, channel_id.bytes, sha256).hexdigest()


def signature(secret: str, body: bytes, at_s: int) -> str:
    """The header's value: when it was signed, and an HMAC-SHA256 over `<time>.<body>`."""
    made = hmac.new(secret.encode(), f"{at_s}.".encode() + body, sha256).hexdigest()
    return f"t={at_s},v1={made}"


def post(address: str, body: bytes, headers: dict[str, str]) -> None:
    """Send it; raises NotDelivered unless it was answered 2xx."""
    parts = urlsplit(address)
    connection = _connection(parts)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    bound = Timer(EXCHANGE_S_MAX, connection.cut)
    try:
        bound.start()
        connection.connect()
        connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        answer.read(ANSWER_BYTES_MAX)
    except OSError as error:
        raise NotDelivered(f"no answer: {error}") from error
    # A path that is not ASCII; the error's words would tell of it.
    except (ValueError, http.client.InvalidURL):
        raise NotDelivered("the address is not allowed") from None
    except http.client.HTTPException as error:
        raise NotDelivered(f"no answer: {error}") from error
    finally:
        bound.cancel()
        connection.close()
    if not http.client.OK <= answer.status < http.client.MULTIPLE_CHOICES:
        raise NotDelivered(f"answered {answer.status}")


def _connection(parts: SplitResult) -> _Checked:
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    checked = _public_address(host, port)
    if parts.scheme == "https":
        return _CheckedHttps(host, port, checked)
    return _Checked(host, port, checked)


def _public_address(host: str, port: int) -> str:
    """An address of the host; raises NotDelivered for one inside a network."""
    looked_up = _look_ups.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = looked_up.result(LOOK_UP_S_MAX)
    # A label that is too long is a UnicodeError.
    except (OSError, ValueError) as error:
        looked_up.cancel()
        raise NotDelivered(f"{host} cannot be resolved: {error}") from error
    address = str(found[0][4][0])
    if not settings.WEBHOOKS_PRIVATE and not _is_public(address):
        raise NotDelivered(f"{host} resolves to a private address, {address}")
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

    def __init__(self, host: str, port: int, address: str) -> None:
        super().__init__(host, port, timeout=EXCHANGE_S_MAX)
        self._address = address
        self._wire: socket.socket | None = None

    def connect(self) -> None:
        address = (self._address, self.port)
        self.sock = self._wire = socket.create_connection(address, CONNECT_S_MAX)

    def cut(self) -> None:
        """End what is under way, from another thread; a connection that is over stays as it is."""
        if self._wire is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._wire, socket.SHUT_RDWR)


class _CheckedHttps(_Checked):
    def connect(self) -> None:
        """Connect, and let the other side prove its name."""
        super().connect()
        context = ssl.create_default_context()
        self.sock = self._wire = wire = context.wrap_socket(
            self.sock, server_hostname=self.host, do_handshake_on_connect=False
        )
        # Where it can be cut: a handshake may drip as well as an answer.
        wire.do_handshake()
