"""What every operation under /api/ shares: who calls, JSON in and out, lists, and errors.

A caller is a signed-in user with the session's CSRF token, an organization's admin key, or whoever
holds this installation's operator token, who acts as the command line does. Changes may carry an
`Idempotency-Key`; lists come a page at a time.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import IO, Any, ClassVar, TypeVar

import msgspec
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from rest_framework import exceptions
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.permissions import SAFE_METHODS, AllowAny
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder
from rest_framework.views import APIView

from controlplane.core.answers import Page, PageAsk, Row, hints, list_json, moment_text, page_ask
from controlplane.core.api import idempotency
from controlplane.core.api.callers import bearer
from controlplane.core.api.refusals import KeptAbsence, KeptRefusal
from controlplane.core.api.shapes import place
from controlplane.core.api.stepup import SecondFactorRequired, StepUpRequired, recently_confirmed
from controlplane.core.api.throttles import AddressThrottle, CallerThrottle
from controlplane.core.audit.entries import Actor, Whose
from controlplane.core.errors.body import Conflict, Fields, failure
from controlplane.core.rights import rights_json, rights_noted, rights_require
from controlplane.kernel.ids import prefix_of, uuid_asked

FAILED_FROM = 400
CONFLICT = 409
# Where most of what is an organization's is found.
OF_ORGANIZATION = "api/organizations/<org:organization_id>"
# All operations, by address.
VIEWS: dict[str, type[APIView]] = {}
Body = TypeVar("Body", bound=msgspec.Struct)


class MomentEncoder(JSONEncoder):
    """Moments in the one form that answers have; all else as DRF writes it."""

    def default(self, obj: Any) -> Any:
        return moment_text(obj) if isinstance(obj, datetime) else super().default(obj)


class JsonOut(JSONRenderer):
    """Answers as JSON; nothing shows them in another way."""

    encoder_class = MomentEncoder


class Json(BaseParser):
    """JSON; `bounded_pages` has bounded it."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """The decoded body; raises ParseError."""
        try:
            return msgspec.json.decode(stream.read())
        except (msgspec.DecodeError, RecursionError) as error:
            raise exceptions.ParseError(f"Invalid JSON: {error}.") from error


class JsonOnly(BaseContentNegotiation):
    """Whatever a client says it accepts, it gets JSON, and it may send nothing else."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        """The one parser; None for a body that is said to be something else."""
        kind = request.content_type.partition(";")[0].strip().lower()
        return parsers[0] if kind in ("", parsers[0].media_type) else None

    def select_renderer(self, request: Request, renderers: Any, format_suffix: Any = None) -> Any:
        return renderers[0], renderers[0].media_type


class ApiView(APIView):
    """One operation or two on one resource; rights are the services'.

    A class says its address, `at`, below what its base has said that it is `under`. With an
    `Idempotency-Key` a change and its kept answer are one transaction; failures end it.
    """

    under: ClassVar[str] = ""
    attempt: idempotency.KeyedAttempt | None = None
    replay: idempotency.KeptReplay | None = None
    refusal: KeptRefusal | KeptAbsence | None = None
    permission_classes = (AllowAny,)
    throttle_classes = (CallerThrottle,)
    # Asked before who it is, so that guesses count.
    address_throttle: type[AddressThrottle] = AddressThrottle
    parser_classes = (Json,)
    renderer_classes = (JsonOut,)
    content_negotiation_class = JsonOnly

    def __init_subclass__(cls, at: str | None = None, under: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        if at is not None:
            VIEWS[cls.under + at] = cls
        if under:
            cls.under = under

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer; twice the same where the key says that it is the same request."""
        if not self._keyed(request):
            return super().dispatch(request, *args, **kwargs)
        with transaction.atomic(), rights_noted() as noted:
            answer = super().dispatch(request, *args, **kwargs)
            if answer.status_code >= FAILED_FROM:
                transaction.set_rollback(True)
            elif self.attempt is not None:
                rights = rights_json(noted, getattr(self.request.user, "actor_id", None))
                body = _bytes(answer)
                idempotency.attempt_keep(
                    self.attempt, status=answer.status_code, body=body, rights=rights
                )
        if self.refusal is not None:
            self.refusal.told()
        return answer if self.replay is None else _replayed(self.replay)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Before any operation: nothing has a NUL in its name, and the database takes none."""
        by_address = self.address_throttle()
        if not by_address.allow_request(request, self):
            self.throttled(request, by_address.wait())
        super().initial(request, *args, **kwargs)
        if any("\0" in value for value in kwargs.values() if isinstance(value, str)):
            raise Http404
        called = getattr(self, (request.method or "").lower(), None)
        if getattr(called, "step_up", False) and _must_confirm(request):
            raise StepUpRequired
        if self._keyed(request):
            self.attempt = self._begin(request)

    def _keyed(self, request: HttpRequest | Request) -> bool:
        return idempotency.HEADER in request.headers and request.method not in SAFE_METHODS

    def _begin(self, request: Request) -> idempotency.KeyedAttempt:
        path = f"{request.method} {request.get_full_path()}"
        body = msgspec.json.encode(request.data or None, order="deterministic")
        payload = sha256(path.encode() + b"\0" + body).digest()
        user = request.user
        # A stranger has nothing but the request itself, such as a token to redeem, to be known by.
        caller = payload.hex() if user.is_anonymous else f"{user.actor_id} {user.actor_label}"
        return idempotency.attempt_begin(
            caller=caller,
            route=f"{request.method} {request.path}",
            key=request.headers[idempotency.HEADER],
            payload=payload,
            require=lambda rights: rights_require(self.actor(), rights) if rights else None,
        )

    def actor(self) -> Actor:
        """Who calls; raises 401 for no one."""
        user = self.request.user
        if not user.is_authenticated:
            raise exceptions.NotAuthenticated
        found: Actor = user
        return found

    def whose(self) -> Whose:
        """The caller, and the organization that the path names."""
        return {"actor": self.actor(), "organization_id": self.kwargs["organization_id"]}

    def body(self, shape: type[Body]) -> Body:
        """The request's JSON as `shape`; raises 400 that names the field."""
        try:
            return msgspec.convert(_with_uuids(self.request.data, shape), shape)
        except msgspec.ValidationError as error:
            raise ValidationError(_fields(str(error))) from error

    def page_ask(self, prefix: str) -> PageAsk:
        """Which page of a list the query string asks for; raises 400 that names the parameter."""
        return page_ask(self.request.query_params, prefix)

    def page(self, found: Page[Row], form: Callable[[Row], Mapping[str, Any]]) -> Response:
        """A page of a list, each row in its form."""
        return Response(list_json([form(row) for row in found.rows], has_more=found.has_more))

    def listed(
        self,
        found: Iterable[Row],
        form: Callable[[Row], Mapping[str, Any]],
        named: str = "id",
        **more: object,
    ) -> Response:
        """A list that is short and comes whole; `named` is the field that names rows in URLs."""
        return Response({**list_json([form(row) for row in found], named), **more})

    def handle_exception(self, exc: Exception) -> Response:
        """Errors of services as answers."""
        if isinstance(exc, KeptRefusal | KeptAbsence):
            self.refusal = exc
        if isinstance(exc, idempotency.KeptReplay):
            self.replay = exc
            return Response(status=exc.status)
        if isinstance(exc, idempotency.KeyRefused):
            return _key_refused(exc)
        if isinstance(exc, Conflict):
            message = "The resource has changed since you read it."
            return failed(CONFLICT, message, fields=exc.message_dict)
        if isinstance(exc, ValidationError):
            return failed(400, fields=exc.message_dict)
        if isinstance(exc, exceptions.APIException):
            answer = super().handle_exception(exc)
            answer.data = failure(answer.status_code, str(exc.detail))
            return answer
        if isinstance(exc, StepUpRequired | SecondFactorRequired):
            return failed(403, exc.message, code=exc.code)
        if isinstance(exc, PermissionDenied):
            return failed(403, "Permission denied.")
        if isinstance(exc, ObjectDoesNotExist | Http404):
            return failed(404, "Not found.")
        raise exc


def _with_uuids(data: Any, shape: type[msgspec.Struct]) -> Any:
    """A body with bare digits where its shape declares ids; raises 400 that names the field."""
    for name, declared in hints(shape).items() if isinstance(data, dict) else ():
        if (prefix := prefix_of(declared)) and isinstance(data.get(name), str):
            wrong = ValidationError({name: [f"Must be an id: {prefix}_ and 32 hex digits."]})
            data = {**data, name: uuid_asked(data[name], prefix, wrong).hex}
    return data


def _fields(message: str) -> dict[str, list[str]]:
    """What a body's shape lacks, at its field."""
    path, told, named = place(message)
    names = [name for name in (path.lstrip("."), named) if name]
    return {".".join(names) or "body": [f"{told}."]}


def _bytes(answer: HttpResponseBase) -> bytes | None:
    """What is sent; None where it is sent in pieces."""
    if isinstance(answer, Response):
        answer.render()
    return answer.content if isinstance(answer, HttpResponse) else None


def _replayed(replay: idempotency.KeptReplay) -> HttpResponse:
    headers = {idempotency.REPLAYED: "true", "Cache-Control": "no-store"}
    kind = JSONRenderer.media_type
    return HttpResponse(replay.body, status=replay.status, content_type=kind, headers=headers)


def _key_refused(refused: idempotency.KeyRefused) -> Response:
    answer = failed(
        refused.status, fields={idempotency.HEADER: [refused.message]}, code=refused.code
    )
    if refused.status == CONFLICT:
        answer["Retry-After"] = str(idempotency.RETRY_AFTER_S)
    return answer


def _must_confirm(request: Request) -> bool:
    signed_in = bool(request.user.is_authenticated) and bearer(request) is None
    return signed_in and not recently_confirmed(request.session)


def failed(
    status: int, message: str = "", *, fields: Fields | None = None, code: str | None = None
) -> Response:
    return Response(failure(status, message, fields=fields, code=code), status=status)
