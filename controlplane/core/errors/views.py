"""What Django answers where no view does: JSON for programs, a page for people."""

import sys

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views import defaults

from controlplane.core.errors import edge as edge_errors


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if edge_errors.for_programs(request.path):
        return answered(request, edge_errors.not_found(request.path))
    return defaults.page_not_found(request, exception)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    return answered(request, edge_errors.bad_request())


def server_error(request: HttpRequest) -> HttpResponseBase:
    if isinstance(sys.exception(), OperationalError | InterfaceError):
        return answered(request, edge_errors.database_away())
    if edge_errors.for_programs(request.path):
        return answered(request, edge_errors.failed())
    return defaults.server_error(request)


def answered(request: HttpRequest, error: edge_errors.EdgeError) -> HttpResponse:
    body, kind = error.body(request.path)
    return HttpResponse(body, status=error.status, content_type=kind, headers=error.headers)
