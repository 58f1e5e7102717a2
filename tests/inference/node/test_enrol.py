"""A node's credential: from the environment, from its file, or once for a token over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from inference.node.enrol import ENROL_PATH, Enrolment, control_plane_url, credential
from inference.node.options import CREDENTIAL_VARIABLE, ENROL_VARIABLE, BadOption

EARNED = "node_sluice_earned"
TOKEN = {ENROL_VARIABLE: "enrol_sluice_x"}


class Office:
    """A control plane that answers each enrolment as told."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.answer: tuple[int, bytes] = (201, json.dumps({"credential": EARNED}).encode())
        office = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                office.asked.append({"path": self.path, **json.loads(self.rfile.read(length))})
                status, body = office.answer
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def enrolment(self) -> Enrolment:
        """What a node asks of it."""
        url = f"http://127.0.0.1:{self._server.server_port}"
        return Enrolment(url=url, name="gpu-1", pool="large")

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def office() -> Iterator[Office]:
    made = Office()
    yield made
    made.close()


def test_a_token_is_traded_once_and_the_credential_kept(office: Office, tmp_path: Path) -> None:
    file = tmp_path / "credential"
    assert credential(TOKEN, file, office.enrolment) == EARNED
    assert file.read_text().strip() == EARNED
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]
    assert credential(TOKEN, file, office.enrolment) == EARNED
    wanted = {"token": TOKEN[ENROL_VARIABLE], "name": "gpu-1", "pool": "large"}
    assert office.asked == [{"path": ENROL_PATH, **wanted}]


def test_the_environment_comes_first(office: Office, tmp_path: Path) -> None:
    given = {CREDENTIAL_VARIABLE: "node_sluice_given", **TOKEN}
    assert credential(given, tmp_path / "credential", office.enrolment) == "node_sluice_given"
    assert office.asked == []


@pytest.mark.parametrize(
    ("status", "body", "named"),
    [
        (403, b'{"error": {"message": "The token is used.", "fields": {}}}', "token is used"),
        (400, b'{"error": {"message": "x", "fields": {"pool": ["is gold"]}}}', "--pool: is gold"),
        (404, b"<html>", "--enrol-url"),
        (201, b"{}", "did not answer with a credential"),
        (201, b"[", "did not answer with a credential"),
    ],
)
def test_a_refusal_is_told_and_leaves_no_file(
    office: Office, tmp_path: Path, status: int, body: bytes, named: str
) -> None:
    office.answer = (status, body)
    with pytest.raises(BadOption, match=named):
        credential(TOKEN, tmp_path / "credential", office.enrolment)
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_named_before_the_token_is_used(office: Office, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=CREDENTIAL_VARIABLE):
        credential({}, tmp_path / "credential", office.enrolment)
    with pytest.raises(BadOption, match="--credential-file"):
        credential(TOKEN, None, office.enrolment)
    with pytest.raises(BadOption, match="--credential-file"):
        credential(TOKEN, tmp_path / "none" / "credential", office.enrolment)
    assert office.asked == []


def test_nobody_answers(office: Office, tmp_path: Path) -> None:
    office.close()
    with pytest.raises(BadOption, match="does not answer"):
        credential(TOKEN, tmp_path / "credential", office.enrolment)


def test_the_control_plane_is_where_the_gateway_is() -> None:
    assert control_plane_url("wss://sluice.example.org/fleet") == "https://sluice.example.org"
    assert control_plane_url("ws://127.0.0.1:8000/fleet") == "http://127.0.0.1:8000"
