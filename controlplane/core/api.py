"""What every operation under /api/ shares: who calls, JSON in and out, errors that name a field.

A caller is a signed-in user with the session's CSRF token, or whoever holds this installation's
operator token, who acts as the command line does.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from typing import IO, Any, TypeVar

import msgspec
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.permissions import AllowAny
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.core.audit import OPERATOR, Actor, Operator
from controlplane.core.conflict import Conflict

BEARER = "Bearer "
BODY_BYTES_MAX = 1 << 20
_PLACE = re.compile(r"(?P<told>.*?)(?: - at `\$\.(?P<path>.*)`)?", re.DOTALL)
_FIELD_NAMED = re.compile(r"Object (?:missing required|contains unknown) field `(?P<name>[^`]*)`")
Body = TypeVar("Body", bound=msgspec.Struct)


class OperatorAuthentication(BaseAuthentication):
    """`Authorization: Bearer` with the operator token; a wrong one is refused."""

    def authenticate(self, request: Request) -> tuple[Operator, None] | None:
        """The operator, or None where no bearer token was sent."""
        given = bearer(request)
        if given is None:
            return None
        if not same(given, settings.OPERATOR_TOKEN):
            raise exceptions.AuthenticationFailed("The bearer token is not the operator's.")
        return OPERATOR, None

    def authenticate_header(self, request: Request) -> str:
        """What a 401 asks for."""
        return "Bearer"


class TooLarge(exceptions.APIException):
    """A body beyond the bound."""

    status_code = 413
    default_detail = f"A body has at most {BODY_BYTES_MAX:,} bytes."


class BoundedJson(BaseParser):
    """JSON up to a bound, never read further."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """The decoded body; raises TooLarge and ParseError."""
        body = stream.read(BODY_BYTES_MAX + 1)
        if len(body) > BODY_BYTES_MAX:
            raise TooLarge
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise exceptions.ParseError(f"Not JSON: {error}.") from error


class JsonOnly(BaseContentNegotiation):
    """Whatever a client says it accepts, it gets JSON."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        """The one parser."""
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: Any = None) -> Any:
        """The one renderer."""
        return renderers[0], renderers[0].media_type


class ApiView(APIView):
    """One operation or two on one resource; rights are the services'."""

    authentication_classes: Sequence[type[BaseAuthentication]] = (
        OperatorAuthentication,
        SessionAuthentication,
    )
    permission_classes = (AllowAny,)
    parser_classes = (BoundedJson,)
    renderer_classes = (JSONRenderer,)
    content_negotiation_class = JsonOnly

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Before any operation: nothing has a NUL in its name, and the database takes none."""
        super().initial(request, *args, **kwargs)
        if any("\0" in value for value in kwargs.values() if isinstance(value, str)):
            raise Http404

    def actor(self) -> Actor:
        """Who calls; raises 401 for nobody."""
        user = self.request.user
        if isinstance(user, Operator):
            return user
        if not user.is_authenticated:
            raise exceptions.NotAuthenticated
        found: Actor = user
        return found

    def body(self, shape: type[Body]) -> Body:
        """The request's JSON as `shape`; raises 400 that names the field."""
        try:
            return msgspec.convert(self.request.data, shape)
        except msgspec.ValidationError as error:
            raise ValidationError(_fields(str(error))) from error

    def handle_exception(self, exc: Exception) -> Response:
        """Errors of services as answers: {"error": {"message", "fields"}}."""
        if isinstance(exc, Conflict):
            return failed(409, "It is not as it was when you looked.", exc.message_dict)
        if isinstance(exc, ValidationError):
            return failed(400, "Some values are wrong.", exc.message_dict)
        if isinstance(exc, ObjectDoesNotExist | Http404):
            return failed(404, "There is no such thing.")
        if isinstance(exc, PermissionDenied):
            return failed(403, "You may not do this.")
        if isinstance(exc, exceptions.APIException):
            answer = super().handle_exception(exc)
            answer.data = failed(answer.status_code, str(exc.detail)).data
            return answer
        raise exc


def _fields(message: str) -> dict[str, list[str]]:
    """What a body's shape lacks, at its field."""
    found = _PLACE.fullmatch(message)
    told, path = (found["told"], found["path"] or "") if found else (message, "")
    named = _FIELD_NAMED.match(told)
    names = [name for name in (path, named["name"] if named else "") if name]
    return {".".join(names) or "body": [f"{told}."]}


def bearer(request: Any) -> str | None:
    """The bearer token of a request, None without one."""
    text: str = request.META.get("HTTP_AUTHORIZATION", "")
    return text.removeprefix(BEARER).strip() if text.startswith(BEARER) else None


def same(given: str, known: str) -> bool:
    """Whether two secrets are one, in constant time."""
    return hmac.compare_digest(given.encode(), known.encode())


def failed(status: int, message: str, fields: dict[str, list[str]] | None = None) -> Response:
    """An error as every client sees it."""
    return Response({"error": {"message": message, "fields": fields or {}}}, status=status)
