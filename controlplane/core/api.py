"""What every operation under /api/ shares: who calls, JSON in and out, errors that name a field.

A caller is a signed-in user with the session's CSRF token, or whoever holds this installation's
operator token, who acts as the command line does.
"""

from __future__ import annotations

import hmac
from typing import Any, TypeVar

import msgspec
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.permissions import AllowAny
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.core.audit import OPERATOR, Actor, Operator

BEARER = "Bearer "
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

    authentication_classes = (OperatorAuthentication, SessionAuthentication)
    permission_classes = (AllowAny,)
    parser_classes = (JSONParser,)
    renderer_classes = (JSONRenderer,)
    content_negotiation_class = JsonOnly

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
            raise exceptions.ValidationError({"body": str(error)}) from error

    def handle_exception(self, exc: Exception) -> Response:
        """Errors of services as answers: {"error": {"message", "fields"}}."""
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
