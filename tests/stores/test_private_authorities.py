"""Certificates of an authority of one's own: believed where it is named, and refused without it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.core.management.base import CommandError

from controlplane.core.mail import TrustingBackend
from controlplane.core.outbound import NotReached, outbound
from controlplane.insights.client import post
from frontend.people import oidc
from inference.engines.remote.server import RemoteOptions, Server
from inference.errors import ModelError
from inference.tls import CA_VARIABLE, client_context
from tests.product.traffic import ask, make_body, open_client
from tests.support.hub import LARGE_BYTES, Hub, fetch, running_hub
from tests.support.loopback import HOST
from tests.support.product import Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.stores import database_urls, doctor_says, redis_login
from tests.support.tls import NAME, Authority, make_authority, tls_front

FULL = "sslmode=verify-full"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("other"))


class Answering(BaseHTTPRequestHandler):
    """Answers everything with an object."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def https(authority: Authority) -> Iterator[str]:
    """A server with a certificate of our authority."""
    with HTTPServer((HOST, 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with tls_front(authority, server.server_port) as port:
            yield f"https://{NAME}:{port}"
        server.shutdown()
        thread.join()


def _webhook(url: str) -> None:
    assert outbound("POST", url, headers={}, private=True, bytes_max=2) == (200, b"{}")


def _provider_of_identities(url: str) -> None:
    with oidc._session() as session:
        assert session.get(url, withhold_token=True).json() == {}  # type: ignore[call-arg]


def _provider_of_models(url: str) -> None:
    async def look() -> None:
        server = Server(RemoteOptions(url=url, name="any", server="openai"))
        try:
            await server.find_model()
        finally:
            await server.close()

    asyncio.run(look())


def _command(url: str) -> None:
    assert post(url, "key", b"", agent="tests") == (200, {})


OURS: list[Callable[[str], None]] = [
    _webhook,
    _provider_of_identities,
    _provider_of_models,
    _command,
]


@pytest.mark.parametrize("dials", OURS)
def test_every_client_believes_the_authority_that_is_named_and_no_other(
    dials: Callable[[str], None],
    https: str,
    authority: Authority,
    stranger: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(CA_VARIABLE, raising=False)
    with pytest.raises((OSError, NotReached, CommandError, ModelError)):
        dials(https)
    monkeypatch.setenv(CA_VARIABLE, str(stranger.ca))
    with pytest.raises((OSError, NotReached, CommandError, ModelError)):
        dials(https)
    monkeypatch.setenv(CA_VARIABLE, str(authority.ca))
    dials(https)
    assert TrustingBackend().ssl_context is client_context()


def test_a_model_is_fetched_from_a_hub_with_a_certificate_of_ones_own(
    authority: Authority, tmp_path: Path
) -> None:
    large = b"w" * (LARGE_BYTES + 1)
    files = {"config.json": b"{}", "model.safetensors": large}
    with (
        running_hub(Hub("owner/m", {"main": files})) as hub,
        tls_front(authority, urlsplit(hub.url).port or 0) as port,
    ):
        place = {"HF_ENDPOINT": f"https://{NAME}:{port}"}
        refused = fetch(tmp_path, "owner/m", **place)
        assert refused.returncode != 0 and "CERTIFICATE_VERIFY_FAILED" in refused.stderr
        made = fetch(tmp_path, "owner/m", **place, **{CA_VARIABLE: str(authority.ca)})
    assert made.returncode == 0, made.stderr
    folder = Path(made.stdout.strip())
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == files


def test_a_file_of_no_use_is_told_by_the_variables_name(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("no certificate")
    for file in ("empty.pem", "missing.pem"):
        told = _fails("-c", "import controlplane.settings", file=tmp_path / file)
        assert f"ImproperlyConfigured: {CA_VARIABLE}: {tmp_path / file}: " in told
        node = ("-m", "inference", "--gateway", "ws://localhost:1/fleet", "--name", "n")
        assert f"python -m inference: {CA_VARIABLE}: " in _fails(*node, file=tmp_path / file)


def _fails(*argv: str, file: Path) -> str:
    ended = subprocess.run(
        [sys.executable, *argv],
        env={**os.environ, CA_VARIABLE: str(file)},
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
    )
    assert ended.returncode != 0
    return ended.stderr


@pytest.fixture
def secured(
    servers: Servers, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Product, dict[str, str]]]:
    """A product that reaches its stores, and is reached by its node, by TLS alone."""
    monkeypatch.setenv(CA_VARIABLE, str(authority.ca))
    with ExitStack() as fronts:
        socket = servers.layout.sockets / ".s.PGSQL.5432"
        postgres = fronts.enter_context(tls_front(authority, socket, postgres=True))
        redis = fronts.enter_context(tls_front(authority, servers.layout.redis_socket))
        stores = {
            **database_urls(f"{NAME}:{postgres}", f"{FULL}&sslrootcert={authority.ca}"),
            "REDIS_URL": f"rediss://{redis_login()}{NAME}:{redis}/0",
        }
        plan = Plan(
            started=False,
            gateway_env=lambda _: stores,
            dial=lambda _, port: fronts.enter_context(tls_front(authority, port)),
        )
        with running_product(servers, plan) as product:
            node = product.nodes[0]
            node._argv = [word.replace(f"ws://{HOST}", f"wss://{NAME}") for word in node._argv]
            product.mend()
            yield product, stores


async def test_requests_are_served_from_stores_with_certificates_of_ones_own(
    secured: tuple[Product, dict[str, str]], stranger: Authority
) -> None:
    product, stores = secured
    async with open_client(product.urls[0]) as client:
        answer = await ask(client, product.key, make_body())
    assert answer.whole and answer.usage
    well = doctor_says(stores)
    assert "PostgreSQL: 1" in well and "Redis: answers" not in well
    others = {name: url.replace("ours", "other") for name, url in stores.items()}
    told = doctor_says({**others, CA_VARIABLE: str(stranger.ca)})
    assert told.count("certificate verify failed") == 2
