"""An authority of a test's own, and TLS in front of a server that speaks none."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.loopback import HOST, reserve_port

NAME = "localhost"
CHUNK_BYTES = 1 << 16
# What a client of PostgreSQL asks first, which has 8 bytes, and the answer that TLS follows.
SSL_REQUEST_BYTES, SSL_YES = 8, b"S"
OLD, NEW = timedelta(days=-1), timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """Its certificate, and one with its key that it has given to these names and 127.0.0.1."""

    ca: Path
    certificate: Path
    key: Path


def make_authority(folder: Path, *names: str) -> Authority:
    """A new one, as PEM files in the folder; without names for `localhost`."""
    made = Authority(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"Authority {folder.name}")])
    hosts = [*map(x509.DNSName, names or [NAME]), x509.IPAddress(IPv4Address(HOST))]
    own = _begun(ca, ca, ca_key).add_extension(x509.BasicConstraints(True, None), critical=True)
    given = _begun(x509.Name([]), ca, key).add_extension(
        x509.SubjectAlternativeName(hosts), critical=True
    )
    made.ca.write_bytes(_pem(own.sign(ca_key, hashes.SHA256())))
    made.certificate.write_bytes(_pem(given.sign(ca_key, hashes.SHA256())))
    made.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    made.key.chmod(0o600)
    return made


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + OLD)
        .not_valid_after(now + NEW)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@contextmanager
def tls_front(authority: Authority, behind: Path | int, *, postgres: bool = False) -> Iterator[int]:
    """The port of a server that takes TLS off for the one at the socket or port; PostgreSQL's
    clients ask for it first.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate, authority.key)
    port = reserve_port()
    loop, over = asyncio.new_event_loop(), asyncio.Event()

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            if postgres:
                await reader.readexactly(SSL_REQUEST_BYTES)
                writer.write(SSL_YES)
                await writer.start_tls(context)
            server, back = await _dialled(behind)
            await asyncio.gather(_pump(reader, back), _pump(server, writer))
        writer.close()

    async def serve() -> None:
        secure = None if postgres else context
        async with await asyncio.start_server(taken, HOST, port, ssl=secure):
            await over.wait()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


async def _dialled(behind: Path | int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(behind, int):
        return await asyncio.open_connection(HOST, behind)
    return await asyncio.open_unix_connection(behind)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
