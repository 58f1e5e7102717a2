"""What Django's middleware says with each page, said with every answer beside them, too: static
files, and refusals that never reach Django.
"""

from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse
from django.middleware.security import SecurityMiddleware

from controlplane.slow_readers import Message, Send


class SecurityHeaders:
    """An ASGI application around another one, by the settings of `SecurityMiddleware`."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self._middleware = SecurityMiddleware(lambda request: HttpResponse())

    async def __call__(self, scope: Message, receive: Any, send: Send) -> None:
        """Answer one request; what an answer says itself stays."""

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message["headers"]}
                more = [pair for pair in self._of(scope) if pair[0] not in own]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await self._app(scope, receive, secured)

    def _of(self, scope: Message) -> list[tuple[bytes, bytes]]:
        answer = HttpResponse()
        del answer["Content-Type"]
        self._middleware.process_response(ASGIRequest(dict(scope), BytesIO()), answer)
        return [(name.lower().encode(), value.encode()) for name, value in answer.items()]
