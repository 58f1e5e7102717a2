"""S6: the proxies that we ship: what a client makes up is gone, what the proxy saw arrives, and
every prefix gets where it belongs. nginx, HAProxy and Caddy run; Envoy's file is read as it
documents.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.http import HttpRequest
from django.test import override_settings

from controlplane import asgi
from controlplane.core.audit.origin import client_address
from controlplane.gateway.call import Call
from controlplane.gateway.places import Places
from controlplane.settings.gateway import REGION_HEADER
from tests.support.loopback import HOST, reserve_port
from tests.support.raw import serving_app
from tests.support.tls import make_authority

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker" / "proxies"
PACKAGING = ROOT / ".packaging"
# The proxy speaks to us from its own address; clients come from another of the same machine.
TRUSTED = (f"{HOST}/32",)
# Paths of a gateway that are not below /v1.
OF_SERVERS = ("/tokenize", "/detokenize", "/score", "/rerank", "/v2/rerank")
CLIENT = "127.0.0.9"
FORGED = {
    "X-Forwarded-For": "10.9.9.9, 10.8.8.8",
    "x-forwarded-for": "10.7.7.7",
    "X-Sluice-Region": "forged",
    "X-Forwarded-Proto": "http",
    "X-Request-Start": "t=1",
}
SOCKET = (
    "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)  # fmt: skip
START_S_MAX = 20.0
SBIN = f"{os.environ['PATH']}:/usr/sbin:/sbin"


class Upstream:
    """A gateway or web process that tells what it was asked, and by whom as our code sees it."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        seen = json.dumps({"name": self.name, "path": scope["path"], **judged(scope)})
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept", "headers": [(b"x-seen", seen.encode())]})
            await send({"type": "websocket.close"})
            return
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": seen.encode()})


def judged(scope: Mapping[str, Any]) -> dict[str, Any]:
    """Address and region as gateway and pages understand them, and what else they believe."""
    headers, peer = list(scope["headers"]), scope["client"][0]
    call = Call(headers, peer=peer)
    places = Places(header=REGION_HEADER, trusted_proxies=TRUSTED)
    joined: dict[str, str] = {}
    for name, value in headers:
        key = f"HTTP_{name.decode().upper().replace('-', '_')}"
        joined[key] = ",".join(filter(None, (joined.get(key), value.decode())))
    request = HttpRequest()
    request.META = {"REMOTE_ADDR": peer, **joined}
    with override_settings(TRUSTED_PROXIES=TRUSTED):
        page_address = client_address(request)
    return {
        "gateway": places.address_of(call),
        "page": page_address,
        "region": places.region_of(call),
        "proto": joined.get("HTTP_X_FORWARDED_PROTO"),
        "began": joined.get("HTTP_X_REQUEST_START"),
        "host": joined.get("HTTP_HOST"),
        "upgrade": joined.get("HTTP_UPGRADE"),
    }


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for loopback and its key, apart and in one file."""
    folder = tmp_path_factory.mktemp("certificate")
    made = make_authority(folder, "sluice.example.org")
    secret = made.key.read_bytes()
    (folder / "sluice.key").write_bytes(secret)
    (folder / "sluice.pem").write_bytes(made.certificate.read_bytes() + secret)
    return folder


def adapted(name: str, ports: Mapping[str, int], certificate: Path, port: int) -> str:
    """The shipped file with this test's ports, names and certificate, and nothing else changed."""
    text = (FOLDER / name).read_text()
    for upstream, at in ports.items():
        text = text.replace(f"{upstream}.internal:8000", f"{HOST}:{at}")
    text = re.sub(r"/etc/(nginx|haproxy)/sluice", str(certificate / "sluice"), text)
    text = text.replace("listen 443 ssl", f"listen {HOST}:{port} ssl")
    # Caddy gets no certificate here, and asks for the name, which this test's clients do not send.
    text = text.replace(
        "admin off", "admin off\n\tauto_https off\n\tdefault_sni sluice.example.org"
    )
    text = text.replace("https_port 8443", f"https_port {port}")
    site = f"https://sluice.example.org {{\n\tbind {HOST}"
    tls = f"\n\ttls {certificate}/sluice.pem {certificate}/sluice.key"
    text = text.replace("{$SLUICE_SITE} {", site + tls)
    return text.replace("bind :443", f"bind {HOST}:{port}")


@contextlib.asynccontextmanager
async def nginx(text: str, folder: Path) -> AsyncIterator[None]:
    logs = f"error_log {folder}/error.log; pid {folder}/pid; daemon off;\n"
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = logs + text.replace("http {", f"http {{\naccess_log off;\n{places}", 1)
    (folder / "nginx.conf").write_text(text)
    async with running("nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")):
        yield


@contextlib.asynccontextmanager
async def haproxy(text: str, folder: Path) -> AsyncIterator[None]:
    (folder / "haproxy.cfg").write_text(text)
    async with running("haproxy", "-db", "-f", str(folder / "haproxy.cfg")):
        yield


@contextlib.asynccontextmanager
async def caddy(text: str, folder: Path) -> AsyncIterator[None]:
    (folder / "Caddyfile").write_text(text)
    found = shutil.which("caddy", path=PACKAGING / "bin")
    assert found, "The tests need Caddy: make .packaging, as `make test` does."
    homes = [f"XDG_{kind}_HOME={folder}" for kind in ("DATA", "CONFIG")]
    async with running("env", *homes, found, "run", "--config", str(folder / "Caddyfile")):
        yield


@contextlib.asynccontextmanager
async def running(program: str, *arguments: str) -> AsyncIterator[None]:
    found = shutil.which(program, path=SBIN)
    assert found, f"The tests need {program}: make tools."
    process = await asyncio.create_subprocess_exec(
        found, *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


RUN = {"nginx.conf": nginx, "haproxy.cfg": haproxy, "Caddyfile": caddy}


@pytest.fixture(params=list(RUN))
async def proxy(
    request: pytest.FixtureRequest, certificate: Path, tmp_path: Path
) -> AsyncIterator[int]:
    """The port of a proxy in front of two gateways and a web process."""
    name, port = request.param, reserve_port()
    async with contextlib.AsyncExitStack() as stack:
        ports = {
            upstream: await stack.enter_async_context(serving_app(Upstream(upstream)))
            for upstream in ("gw1", "gw2", "web")
        }
        await stack.enter_async_context(
            RUN[name](adapted(name, ports, certificate, port), tmp_path)
        )
        await up(port)
        yield port


async def up(port: int) -> None:
    """Return once the proxy takes connections and has found its upstreams."""
    async with asyncio.timeout(START_S_MAX):
        while True:
            with contextlib.suppress(OSError, AssertionError):
                for path in ("/", "/v1/models"):
                    await asked(port, path)
                return
            await asyncio.sleep(0.1)


async def asked(port: int, path: str, *lines: str) -> dict[str, Any]:
    """What the upstream saw of a request with these further lines in its head."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(HOST, port, ssl=context, local_addr=(CLIENT, 0))
    socket = lines == SOCKET
    closing = () if socket else ("Connection: close",)
    forged = [f"{name}: {value}" for name, value in FORGED.items()]
    head = [f"GET {path} HTTP/1.1", "Host: sluice.example.org", *closing, *forged, *lines, "", ""]
    try:
        writer.write("\r\n".join(head).encode())
        answer = await reader.readuntil(b"\r\n\r\n") if socket else await reader.read()
    finally:
        writer.close()
    assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 101")), answer
    (found,) = re.findall(rb"\{.*\}", answer)
    made: dict[str, Any] = json.loads(found)
    return made


async def test_what_a_client_makes_up_is_not_believed(proxy: int) -> None:
    for path, lines in (("/v1/models", ()), ("/sign-in", ()), ("/live", SOCKET)):
        seen = await asked(proxy, path, *lines)
        assert (seen["gateway"], seen["page"]) == (CLIENT, CLIENT)
        assert (seen["region"], seen["proto"]) == (None, "https")
        assert seen["host"] == "sluice.example.org"
        began = float(seen["began"].removeprefix("t="))
        assert began > 1_000_000_000


async def test_each_prefix_gets_where_it_belongs(proxy: int) -> None:
    for path, names in (
        ("/", {"web"}),
        ("/api/schema", {"web"}),
        ("/v1/organization/costs", {"web"}),
        ("/v1/models", {"gw1", "gw2"}),
        ("/tokens", {"web"}),
        *((path, {"gw1", "gw2"}) for path in OF_SERVERS),
    ):
        seen = await asked(proxy, path)
        assert (seen["path"], seen["name"] in names) == (path, True)
    for path, told, names in (
        ("/live", "/live", {"web"}),
        ("/fleet", "/fleet", {"gw1", "gw2"}),
        ("/fleet/gw1", "/fleet", {"gw1"}),
        ("/fleet/gw2", "/fleet", {"gw2"}),
    ):
        seen = await asked(proxy, path, *SOCKET)
        assert (seen["path"], seen["name"] in names) == (told, True)


async def test_no_other_protocol_is_asked_for(proxy: int) -> None:
    lines = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c")
    seen = await asked(proxy, "/v1/models", *lines)
    assert (seen["path"], seen["upgrade"]) == ("/v1/models", None)


def manager() -> dict[str, Any]:
    """Envoy's connection manager, as the shipped file has it."""
    made = yaml.safe_load((FOLDER / "envoy.yaml").read_text())
    (listener,) = made["static_resources"]["listeners"]
    (chain,) = listener["filter_chains"]
    found: dict[str, Any] = chain["filters"][0]["typed_config"]
    return found


def by_envoy(headers: list[tuple[str, str]], peer: str) -> list[tuple[str, str]]:
    """What Envoy makes of a client's headers: early mutations, its own view, the route's."""
    config = manager()
    for extension in config["early_header_mutation_extensions"]:
        gone = {each["remove"] for each in extension["typed_config"]["mutations"]}
        headers = [(name, value) for name, value in headers if name.lower() not in gone]
    if config["use_remote_address"]:
        headers = [pair for pair in headers if pair[0].lower() != "x-forwarded-proto"]
        headers += [("x-forwarded-for", peer), ("x-forwarded-proto", "https")]
    for added in config["route_config"]["request_headers_to_add"]:
        assert added["append_action"] == "OVERWRITE_IF_EXISTS_OR_ADD"
        name = added["header"]["key"]
        headers = [pair for pair in headers if pair[0].lower() != name]
        headers.append((name, "t=1700000000.123"))
    return headers


def test_envoy_believes_nothing_either() -> None:
    headers = by_envoy([*FORGED.items(), ("Host", "sluice.example.org")], CLIENT)
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    seen = judged({"headers": raw, "client": (HOST, 1)})
    assert (seen["gateway"], seen["page"], seen["region"]) == (CLIENT, CLIENT, None)
    assert (seen["proto"], seen["began"]) == ("https", "t=1700000000.123")


def envoy_routes() -> Iterator[tuple[str, str, str]]:
    """Prefix or path, cluster, and the path that the cluster sees."""
    (host,) = manager()["route_config"]["virtual_hosts"]
    for route in host["routes"]:
        (match,) = route["match"].values()
        yield match, route["route"]["cluster"], route["route"].get("prefix_rewrite", match)


def test_all_paths_of_gateways_are_known_here() -> None:
    assert set(OF_SERVERS) == asgi.OF_SERVERS


def test_envoys_routes_lead_where_they_should() -> None:
    assert list(envoy_routes()) == [
        ("/v1/organization/", "web", "/v1/organization/"),
        ("/v1/", "gateways", "/v1/"),
        *((path, "gateways", path) for path in OF_SERVERS),
        ("/fleet", "gateways", "/fleet"),
        ("/fleet/gw1", "gw1", "/fleet"),
        ("/fleet/gw2", "gw2", "/fleet"),
        ("/live", "web", "/live"),
        ("/", "web", "/"),
    ]
    clusters = yaml.safe_load((FOLDER / "envoy.yaml").read_text())["static_resources"]["clusters"]
    assert {each["name"] for each in clusters} == {"gateways", "gw1", "gw2", "web"}
