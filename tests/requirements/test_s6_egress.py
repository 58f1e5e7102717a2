"""S6: where a proxy alone leads outside, all goes through it, and nothing gets inside by it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.test import Client
from pytest import MonkeyPatch

from controlplane.bridge.http.links import fetch_from
from controlplane.composed.livemap.dials import POSTGRES, PROVIDER, DialTarget, dial
from controlplane.core import outbound as outbound_module
from controlplane.core.outbound import LOOK_UPS_MAX, NotReached, outbound
from controlplane.gateway.ports_contents import FetchRefused
from controlplane.slos.channels.delivery import post
from inference.engines.remote.server import RemoteOptions, Server
from inference.tls import CA_VARIABLE
from tests.frontend.people.test_provider import HERE, begin, come_back, signed_in_as
from tests.support.egress import (
    PASSWORD,
    USER,
    ForwardProxy,
    certificate,
    proxy_running,
    running,
)
from tests.support.hub import Hub, fetch, running_hub
from tests.support.loopback import HOST
from tests.support.people import make_cast
from tests.support.provider import Provider, oidc_provider
from tests.support.upstream import hand_upstream
from tests.support.waiting import WAIT_S_MAX

OUTSIDE, INSIDE = "93.184.216.34", "10.0.0.7"
NAMES = {"hooks.example": OUTSIDE, "images.example": OUTSIDE, "inside.example": INSIDE}
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class Receiver(BaseHTTPRequestHandler):
    """Answers what it is sent."""

    def do_POST(self) -> None:
        """The body, back."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(body + self.headers["Host"].encode())

    def do_GET(self) -> None:
        """Some bytes."""
        self._answer(b"image")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def proxy(monkeypatch: MonkeyPatch) -> Iterator[ForwardProxy]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    with proxy_running() as made:
        monkeypatch.setenv("HTTPS_PROXY", made.url)
        monkeypatch.setenv("HTTP_PROXY", made.url)
        yield made


@pytest.fixture
def looked_up(monkeypatch: MonkeyPatch) -> list[str]:
    """Names of our own, and which of them were looked up here."""
    real, found = socket.getaddrinfo, list[str]()

    def look_up(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        text = host.decode() if isinstance(host, bytes) else host
        if not text.endswith(".example") or named.get("flags"):
            return real(host, port, *more, **named)
        found.append(text)
        if text not in NAMES:
            raise socket.gaierror("no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (NAMES[text], port))]

    monkeypatch.setattr("socket.getaddrinfo", look_up)
    return found


@pytest.fixture
def hooks(tmp_path: Path, proxy: ForwardProxy, monkeypatch: MonkeyPatch) -> Iterator[None]:
    """A receiver with TLS at hooks.example, to which the proxy leads by its address."""
    trusted, context = certificate(tmp_path, "hooks.example")
    monkeypatch.setenv(CA_VARIABLE, str(trusted))
    server = ThreadingHTTPServer((HOST, 0), Receiver)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with running(server) as port:
        proxy.leads[OUTSIDE] = port
        yield


def send(url: str, *, private: bool = False) -> tuple[int, bytes]:
    return outbound("POST", url, headers={}, private=private, bytes_max=99, body=b"hello ")


@pytest.mark.usefixtures("hooks")
def test_a_webhook_goes_by_the_proxy_to_the_address_that_was_checked(
    proxy: ForwardProxy, looked_up: list[str]
) -> None:
    assert send("https://hooks.example/sluice") == (200, b"hello hooks.example:443")
    assert proxy.asked == [f"CONNECT {OUTSIDE}:443"] and looked_up == ["hooks.example"]
    post("https://hooks.example/sluice", b"{}", {})
    assert len(proxy.asked) == 2


@pytest.mark.usefixtures("hooks")
def test_the_proxy_is_shown_its_password(proxy: ForwardProxy, monkeypatch: MonkeyPatch) -> None:
    proxy.guarded, proxy.leads["hooks.example"] = True, proxy.leads[OUTSIDE]
    with pytest.raises(NotReached, match="the proxy answered 407"):
        send("https://hooks.example/", private=True)
    known = proxy.url.replace("://", f"://{USER}:p%40ss%20word@")
    assert PASSWORD == "p@ss word"
    monkeypatch.setenv("HTTPS_PROXY", known)
    assert send("https://hooks.example/", private=True)[0] == 200


@pytest.mark.parametrize("resolves", [False, True])
@pytest.mark.parametrize(
    "host", ["169.254.169.254", "0x7f.1", "2130706433", "[::1]", "localhost", "[64:ff9b::a00:1]"]
)
def test_no_address_of_a_network_is_asked_of_the_proxy(
    proxy: ForwardProxy, monkeypatch: MonkeyPatch, host: str, resolves: bool
) -> None:
    monkeypatch.setattr(settings, "PROXY_RESOLVES", resolves)
    with pytest.raises(NotReached, match="private address"):
        send(f"https://{host}/")
    assert not proxy.asked


@pytest.mark.usefixtures("looked_up")
def test_no_name_of_a_network_is_asked_of_the_proxy(proxy: ForwardProxy) -> None:
    for host, why in (("inside.example", "private address"), ("none.example", "cannot be")):
        with pytest.raises(NotReached, match=why):
            send(f"https://{host}/")
    assert not proxy.asked


@pytest.mark.usefixtures("hooks")
def test_a_proxy_that_is_to_look_names_up_is_given_names(
    proxy: ForwardProxy, looked_up: list[str], monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "PROXY_RESOLVES", True)
    proxy.leads["hooks.example"] = proxy.leads[OUTSIDE]
    assert send("https://hooks.example/")[0] == 200
    assert proxy.asked == ["CONNECT hooks.example:443"] and not looked_up
    with pytest.raises(NotReached, match="the proxy answered 403"):
        send("https://inside.example/")


def test_slow_names_of_tenants_do_not_hold_up_the_proxys(
    proxy: ForwardProxy, monkeypatch: MonkeyPatch
) -> None:
    answered, real = Event(), socket.getaddrinfo

    def look_up(host: Any, *more: Any, **named: Any) -> Any:
        if str(host).startswith("slow") and not named.get("flags"):
            answered.wait(WAIT_S_MAX)
        return real(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(outbound_module, "LOOK_UP_S_MAX", 0.05)
    try:
        for number in range(LOOK_UPS_MAX):
            with pytest.raises(NotReached, match="resolved"):
                send(f"https://slow{number}/")
        monkeypatch.setattr(outbound_module, "LOOK_UP_S_MAX", WAIT_S_MAX / 2)
        with pytest.raises(NotReached, match="the proxy answered"):
            send("https://anywhere.example/", private=True)
    finally:
        answered.set()


@pytest.mark.usefixtures("looked_up")
def test_who_is_named_in_no_proxy_is_reached_without(
    proxy: ForwardProxy, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", ".example")
    went: list[object] = []

    def create(address: object, timeout: float) -> socket.socket:
        went.append(address)
        raise OSError("no way")

    monkeypatch.setattr("socket.create_connection", create)
    with pytest.raises(NotReached, match="no way"):
        send("https://hooks.example/")
    assert went == [(OUTSIDE, 443)] and not proxy.asked


def test_a_proxy_that_cannot_be_used_is_said_to_be(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy.example:1080")
    with pytest.raises(NotReached, match="must be http://HOST:PORT"):
        send("https://hooks.example/", private=True)
    for told in (b"SSH-2.0-x\r\n", b""):
        with socket.create_server((HOST, 0)) as server:
            monkeypatch.setenv("HTTPS_PROXY", f"http://{HOST}:{server.getsockname()[1]}")
            speak(server, told)
            with pytest.raises(NotReached, match="does not answer as one"):
                send("https://hooks.example/", private=True)


def speak(server: socket.socket, told: bytes) -> None:
    """To who comes, in the background."""

    def answer() -> None:
        wire, _ = server.accept()
        with wire:
            wire.recv(1_000)
            wire.sendall(told)

    Thread(target=answer, daemon=True).start()


@pytest.mark.usefixtures("looked_up")
def test_images_of_requests_come_by_the_proxy(proxy: ForwardProxy) -> None:
    with running(ThreadingHTTPServer((HOST, 0), Receiver)) as port:
        proxy.leads[OUTSIDE] = port
        fetch = fetch_from(("http://images.example", "http://inside.example"))
        assert fetch("http://images.example/a.png") == b"image"
        assert proxy.asked == [f"CONNECT {OUTSIDE}:80"]
        with pytest.raises(FetchRefused):
            fetch("http://inside.example/a.png")
    assert len(proxy.asked) == 1


async def test_a_node_reaches_its_provider_by_the_proxy(proxy: ForwardProxy) -> None:
    async with hand_upstream() as upstream:
        proxy.leads["models.example"] = urlsplit(upstream.url).port or 0
        options = RemoteOptions(
            url="http://models.example/v1", name="ours", upstream_model="big", key="k", credits=4
        )
        server = Server(options)
        try:
            await server.find_model()
        finally:
            await server.close()
    assert "GET http://models.example/v1/models" in proxy.asked


def test_the_live_map_dials_by_the_proxy_and_stores_without(proxy: ForwardProxy) -> None:
    with socket.create_server((HOST, 0)) as server:
        proxy.leads["models.example"] = server.getsockname()[1]
        found = dial(DialTarget(PROVIDER, "p", "models.example", 443))
        assert found.problem == "" and proxy.asked == ["CONNECT models.example:443"]
        assert "403" in dial(DialTarget(PROVIDER, "p", "other.example", 443)).problem
    dial(DialTarget(POSTGRES, "", "192.0.2.1", 1, private=False))
    assert len(proxy.asked) == 2


def test_a_model_is_fetched_from_the_hub_by_the_proxy(proxy: ForwardProxy, tmp_path: Path) -> None:
    with running_hub(Hub("owner/m", {"main": {"config.json": b"{}"}})) as hub:
        proxy.leads["hub.example"] = urlsplit(hub.url).port or 0
        made = fetch(tmp_path, "owner/m", HF_ENDPOINT="http://hub.example")
    assert made.returncode == 0, made.stderr
    assert (Path(made.stdout.strip()) / "config.json").read_bytes() == b"{}"
    assert any("http://hub.example/" in each for each in proxy.asked)


def test_single_sign_on_asks_the_provider_by_the_proxy(
    database: str, proxy: ForwardProxy, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    cast = make_cast()
    trusted, context = certificate(tmp_path, "id.example")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(trusted))
    provider = Provider()
    provider.server.socket = context.wrap_socket(provider.server.socket, server_side=True)
    provider.issuer = provider.origin = "https://id.example"
    monkeypatch.setattr(settings, "OIDC_PROVIDERS", (oidc_provider(provider.issuer),))
    with running(provider.server) as port:
        proxy.leads["id.example"] = port
        client = Client()
        assert client.get(HERE).headers["Location"].startswith("https://id.example/authorize")
        come_back(client, provider, begin(client), email=cast.bob.email)
    assert signed_in_as(client) == cast.bob.email
    assert set(proxy.asked) == {"CONNECT id.example:443"}
