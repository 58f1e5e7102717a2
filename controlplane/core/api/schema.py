"""The API's description of itself in OpenAPI 3.1, and what operations tell it of their bodies.

Answers are typed by `TypedDict`s, bodies by msgspec's structs. What all operations share is written
here once: errors, the idempotency key, pages of lists, and how callers say who they are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, wraps
from itertools import takewhile
from typing import Any, NamedTuple, TypeVar

import msgspec
from django.http.response import HttpResponseBase
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import (
    Direction,
    OpenApiExample,
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
)
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import LIMIT_DEFAULT, LIMIT_MAX
from controlplane.core.api.idempotency import HEADER, KEY_CHARS_MAX
from controlplane.kernel.apis import REF, Error, components_of

JSON = "application/json"
CREATED, ACCEPTED, NO_CONTENT = 201, 202, 204
_WORDS = {ACCEPTED: "Accepted: pending approval, or in progress."}
# Every operation may answer these; changes the further ones besides.
ERRORS = {
    400: "A value is invalid; `fields` names it.",
    401: "Not signed in, or the token is invalid.",
    403: "Permission denied, or the caller must confirm their identity first (`code` is "
    "`step_up_required`).",
    404: "Not found, or not visible to this caller.",
    429: "Too many requests in a minute; `Retry-After` says when to try again.",
}
ERRORS_OF_CHANGES = {
    409: "The resource has changed since the caller read it, or the same request is in progress.",
    413: "The body is too large.",
    422: "The idempotency key was used for a different request.",
}
_PAGE = (
    OpenApiParameter("after", str, description="The last id of the previous page."),
    OpenApiParameter("limit", int, description=f"1 to {LIMIT_MAX}; {LIMIT_DEFAULT} if left out."),
)
_KEY = OpenApiParameter(
    HEADER,
    str,
    OpenApiParameter.HEADER,
    description=(
        f"Up to {KEY_CHARS_MAX} characters, unique for each change: a repeat within 24 "
        "hours does nothing and returns the first response, with `Idempotency-Replayed: true`."
    ),
)
(_ERROR,), _errors = components_of([Error])
# What operations refer to: types, and lists with what is beside their rows. They are described when
# somebody asks, since that would take a tenth of the start of all who know the URLs.
_shapes: dict[str, Any] = {}
_lists: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {}
View = TypeVar("View", bound=Callable[..., Any])


class ApiSchema(AutoSchema):
    """Adds to each operation what all of them share."""

    def get_operation_id(self) -> str:
        """The path's words and the method; `one` for each name of a thing that it ends in."""
        parts = self.path.strip("/").split("/")[1:]
        words = [word for part in parts if (word := part.rpartition("}")[2].lstrip("."))]
        one = ["one" for _ in takewhile(lambda part: part.endswith("}"), reversed(parts))]
        return "_".join([*words, *one, self.method.lower()]).replace("-", "_")

    def get_summary(self) -> str | None:
        """The first line of the operation's own words."""
        return super().get_description().partition("\n")[0].strip() or None

    def get_description(self) -> str:  # type: ignore[override]  # As its own base has it.
        return super().get_description().partition("\n")[2].strip()

    def get_auth(self) -> list[dict[str, list[str]]]:
        """One of these, not none: what the permission class lets in the services still ask."""
        return [each for each in super().get_auth() if each] or [{}]

    def get_override_parameters(self) -> list[Any]:
        return [] if self.method in SAFE_METHODS else [_KEY]

    def _get_response_bodies(self, direction: Direction = "response") -> Any:
        told = super()._get_response_bodies(direction)
        errors = ERRORS if self.method in SAFE_METHODS else {**ERRORS, **ERRORS_OF_CHANGES}
        for status, words in errors.items():
            told.setdefault(
                str(status), {"description": words, "content": {JSON: {"schema": _ERROR}}}
            )
        return told


class Whole(NamedTuple):
    """A list that comes whole: its rows, and what it says besides."""

    row: Any
    beside: Any = None


class OperatorScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the operator calls."""

    target_class = "controlplane.core.api.callers.OperatorAuthentication"
    name = "operatorToken"
    words = "This installation's operator token, with all permissions."

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": self.words}


class AdminKeyScheme(OperatorScheme):  # type: ignore[no-untyped-call]
    """How an organization's programs call."""

    target_class = "controlplane.tenants.adminkeys.auth.AdminKeyAuthentication"
    name = "adminKey"
    words = "An organization's admin key, `admin_sluice_…`; inference keys are not accepted."


def operation(
    *,
    answer: Any = None,
    list_of: Any = None,
    body: type[msgspec.Struct] | None = None,
    params: Sequence[OpenApiParameter] = (),
    example: Mapping[str, Any] | None = None,
    step_up: bool = False,
) -> Callable[[View], Callable[..., HttpResponseBase]]:
    """What an operation takes and answers: `answer` one thing, `list_of` a list of things.

    A list comes a page at a time unless it is `Whole`. Without either it answers nothing; a dict of
    answers is by status. `example` is a body that could be sent. For `step_up` a session must have
    been confirmed recently; a token confirms by itself.

    The view takes its body, read, unless it reads it later by itself, and what it declares of what
    its path names; what it returns that is no response is answered as JSON.
    """
    told: dict[str, Any] | None = None
    if list_of is not None:
        whole = isinstance(list_of, Whole)
        told = _list_schema(*list_of) if whole else _list_schema(list_of)
        params = params if whole else (*_PAGE, *params)
    elif answer is not None and not isinstance(answer, dict):
        told = schema_of(answer)
    responses = {NO_CONTENT if told is None else 200: told}
    if isinstance(answer, dict):
        responses = {code: schema_of(shape) for code, shape in answer.items()}
    examples = [OpenApiExample("Request", example, request_only=True)] if example else None
    decorate = extend_schema(
        request={JSON: schema_of(body)} if body else None,
        responses={
            code: shape and OpenApiResponse(shape, description=_WORDS.get(code, "Done."))
            for code, shape in responses.items()
        },
        parameters=list(params),
        examples=examples,
    )

    def made(view: View) -> Callable[..., HttpResponseBase]:
        taken = {**view.__annotations__, "return": None}
        reads = body is not None and body in taken.values()

        @wraps(view)
        def called(self: Any, request: Request, **named: Any) -> HttpResponseBase:
            given = {name: value for name, value in named.items() if name in taken}
            told = view(self, *([self.body(body)] if reads else ()), **given)
            if isinstance(told, msgspec.Struct):
                told = msgspec.to_builtins(told)
            done = isinstance(told, HttpResponseBase)
            return told if done else Response(told, status=next(iter(responses)))

        vars(called)["step_up"] = step_up
        return decorate(called)

    return made


def schema_of(shape: Any) -> dict[str, Any]:
    """A type of msgspec's as a reference to its component, which is named after its app, too."""
    name = f"{_label(shape)}{shape.__name__}"
    _shapes[name] = shape
    return {"$ref": REF.format(name=name)}


def components_add(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """The last step of the description: the shapes that operations refer to, by name."""
    components = result.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    known = _components()
    wanted = set(_names(result))
    while wanted:
        name = wanted.pop()
        if name not in schemas:
            schemas[name] = known[name]
            wanted |= set(_names(known[name]))
    components["schemas"] = dict(sorted(schemas.items()))
    return result


@cache
def _components() -> dict[str, dict[str, Any]]:
    known = dict(_errors)
    for shape in _shapes.values():
        known.update(components_of([shape], _label(shape))[1])
    for name, (row, beside) in _lists.items():
        known[name] = _list_component(name, row, known[_name(beside)] if beside else None)
    return known


def _label(shape: Any) -> str:
    """The app of a type."""
    return str(shape.__module__.split(".")[1].title())


def _names(node: Any) -> Iterator[str]:
    """Components that a description refers to."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield _name(node)
            else:
                yield from _names(value)
    elif isinstance(node, list):
        for value in node:
            yield from _names(value)


def _list_schema(row: Any, beside: Any = None) -> dict[str, Any]:
    """The one shape of lists, as a component of its own; with the fields of `beside` in it."""
    rows, more = schema_of(row), schema_of(beside) if beside else None
    name = _name(more or rows).removesuffix("Json") + "List"
    _lists[name] = (rows, more)
    return {"$ref": REF.format(name=name)}


def _list_component(name: str, row: Any, beside: dict[str, Any] | None) -> dict[str, Any]:
    own = {
        "object": {"type": "string", "const": "list"},
        "data": {"type": "array", "items": row},
        "first_id": {"type": ["string", "null"], "description": "What names the first row."},
        "last_id": {"type": ["string", "null"], "description": "What names the last row."},
        "has_more": {"type": "boolean"},
    }
    told = beside or {"properties": {}, "required": []}
    return {
        "title": name,
        "type": "object",
        "properties": {**own, **told["properties"]},
        "required": [*own, *told["required"]],
    }


def _name(ref: dict[str, Any]) -> str:
    return str(ref["$ref"]).rpartition("/")[2]
