"""A hub of models on loopback, as far as `huggingface_hub` asks it: listings, files, ranges."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.loopback import HOST

TOKEN = "hf_test"
LARGE_BYTES = 1 << 20
FETCH = """
import sys
from pathlib import Path
from inference.agent.models import HostModels
from inference.contract.hosts import ModelSource
print(HostModels(Path(sys.argv[1]), []).fetch(ModelSource("hub", sys.argv[2])))
"""


@dataclass
class Hub:
    """One repository, its commits by revision; a large file is broken off once at `breaks_at`.

    A search finds those of `listed` whose id has its words, or gets `broken` with a status.
    """

    repository: str = "none/none"
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    listed: list[dict[str, Any]] = field(default_factory=list)
    broken: tuple[int, bytes] | None = None
    searches: list[dict[str, list[str]]] = field(default_factory=list)
    breaks_at: int = 0
    ranges: list[str] = field(default_factory=list)
    url: str = ""

    def commit(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """Id and files of a branch, or of a commit by its id."""
        for name, files in self.commits.items():
            known = sha1(name.encode()).hexdigest()
            if revision in (name, known):
                return known, files
        return None


def entry(name: str, data: bytes) -> dict[str, Any]:
    """A file in a listing; a large one as LFS has it."""
    told: dict[str, Any] = {"rfilename": name, "path": name, "type": "file", "size": len(data)}
    told["blobId"] = told["oid"] = etag(data)
    if len(data) > LARGE_BYTES:
        told["lfs"] = {"sha256": etag(data), "oid": etag(data), "size": len(data)}
        told["lfs"]["pointerSize"] = 100
    return told


def etag(data: bytes) -> str:
    """What names a file's content."""
    return (sha256 if len(data) > LARGE_BYTES else sha1)(data).hexdigest()


class HubRequest(BaseHTTPRequestHandler):
    """One request; its hub is the server's."""

    server: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is said."""

    def do_HEAD(self) -> None:
        """Headers alone."""
        self._answer(body=False)

    def do_GET(self) -> None:
        """A listing or a file."""
        self._answer(body=True)

    def _search(self, query: str, *, body: bool) -> None:
        hub, asked = self.server.hub, parse_qs(query)
        hub.searches.append(asked)
        found = [one for one in hub.listed if asked["search"][0] in one["id"]]
        status, data = hub.broken or (200, json.dumps(found).encode())
        self._send(status, {"Content-Type": "application/json"}, data, body=body)

    def _answer(self, *, body: bool) -> None:
        if urlsplit(self.path).path == "/api/models":
            return self._search(urlsplit(self.path).query, body=body)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._send(401, {}, b"{}", body=body)
        hub, path = self.server.hub, urlsplit(self.path).path.removeprefix("/api/models")
        rest = path.removeprefix(f"/{hub.repository}").split("/", 3)[1:]
        kind, revision, name = (*rest, *[""] * 3)[:3]
        found = hub.commit(revision or "main") if path.startswith(f"/{hub.repository}") else None
        if found is None:
            return self._send(404, {"X-Error-Code": "RevisionNotFound"}, b"{}", body=body)
        sha, files = found
        if kind == "resolve":
            return self._file(sha, files, name, body=body)
        listed = [entry(name, data) for name, data in files.items()]
        info = {"id": hub.repository, "modelId": hub.repository, "sha": sha}
        told = listed if kind == "tree" else {**info, "siblings": listed}
        headers = {"Content-Type": "application/json"}
        return self._send(200, headers, json.dumps(told).encode(), body=body)

    def _file(self, sha: str, files: dict[str, bytes], name: str, *, body: bool) -> None:
        if name not in files:
            return self._send(404, {"X-Error-Code": "EntryNotFound"}, b"", body=body)
        data = files[name]
        headers = {"ETag": f'"{etag(data)}"', "X-Repo-Commit": sha, "Accept-Ranges": "bytes"}
        asked = self.headers.get("Range", "")
        start = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        if body and len(data) > LARGE_BYTES:
            self.server.hub.ranges.append(asked)
            if self.server.hub.breaks_at:
                return self._break_off(headers, data)
        if asked:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        return self._send(206 if asked else 200, headers, data[start:], body=body)

    def _break_off(self, headers: dict[str, str], data: bytes) -> None:
        part, self.server.hub.breaks_at = data[: self.server.hub.breaks_at], 0
        self._head(200, headers, len(data))
        self.wfile.write(part)
        self.close_connection = True

    def _head(self, status: int, headers: dict[str, str], length: int) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, status: int, headers: dict[str, str], data: bytes, *, body: bool) -> None:
        self._head(status, headers, len(data))
        if body:
            self.wfile.write(data)


class HubServer(ThreadingHTTPServer):
    """A server of one hub."""

    def __init__(self, hub: Hub, port: int) -> None:
        self.hub = hub
        super().__init__((HOST, port), HubRequest)


@contextlib.contextmanager
def running_hub(hub: Hub, port: int = 0) -> Iterator[Hub]:
    """The hub's server, until the block ends."""
    server = HubServer(hub, port)
    hub.url = f"http://{HOST}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def fetch(folder: Path, repository: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """An agent's own fetch of a repository, in a process of its own; it prints where it is."""
    told = {"HF_TOKEN": TOKEN, "HF_HOME": str(folder), **variables}
    return subprocess.run(
        [sys.executable, "-c", FETCH, str(folder), repository],
        env={**os.environ, **told},
        capture_output=True,
        text=True,
    )
