"""Static files, before the pages: they take no thread of Django's and no place among requests.

So does the documentation, below `/docs`, where its site has been built.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from wsgiref.headers import Headers

from django.conf import settings
from whitenoise import WhiteNoise
from whitenoise.middleware import WhiteNoiseMiddleware

from controlplane.slow_readers import Message, PacedSend, ReaderGone, Send

PIECE_BYTES = 64 << 10
DOCS = "docs/"
# Its theme has one script within each page, which keeps light or dark as chosen, and styles.
DOCS_POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'sha256-ySvT2PEZeueHGC1y2crNuNTfphBynFPP7i+U21fEgX0='; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class StaticFiles:
    """An ASGI application before another one, which gets all that is no file."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self._files = WhiteNoiseMiddleware()
        self._docs = WhiteNoise(
            None,
            root=settings.DOCS_DIR if settings.DOCS_DIR.is_dir() else None,
            prefix=DOCS,
            index_file=True,
            add_headers_function=_docs_headers,
        )

    async def __call__(self, scope: Message, receive: Any, send: Send) -> None:
        found = self._find(scope["path"]) if scope["method"] in ("GET", "HEAD") else None
        if found is None:
            await self._app(scope, receive, send)
            return
        asked = {
            f"HTTP_{name.decode('latin-1').upper().replace('-', '_')}": value.decode("latin-1")
            for name, value in scope["headers"]
        }
        try:
            await _answer(found.get_response(scope["method"], asked), PacedSend(send))
        except ReaderGone:
            return

    def _find(self, path: str) -> Any:
        if path.startswith(f"/{DOCS[:-1]}"):
            return self._docs.files.get(path)
        if self._files.autorefresh:
            return self._files.find_file(path)
        return self._files.files.get(path)


def _docs_headers(headers: Headers, path: str, url: str) -> None:
    headers["Content-Security-Policy"] = DOCS_POLICY


async def _answer(response: Any, send: PacedSend) -> None:
    """Send a file piece by piece, so that no more than one is in memory."""
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in response.headers
    ]
    try:
        start = {"type": "http.response.start", "status": int(response.status)}
        await send(start | {"headers": headers})
        while response.file is not None:
            piece = await asyncio.to_thread(response.file.read, PIECE_BYTES)
            if not piece:
                break
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        if response.file is not None:
            response.file.close()
