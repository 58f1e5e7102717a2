"""The page that whoever changes too much within a minute sees."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from controlplane.core.audit.entries import MESSAGE, RETRY_AFTER_S, TooManyChanges
from frontend.shared.access import notice


class TooManyChangesPage:
    """Middleware: a change beyond the bound, from whichever view, is a 429."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """The page for this one error; others are none of ours."""
        if not isinstance(error, TooManyChanges):
            return None
        text, home = f"{MESSAGE} Nothing was changed.", ("/", "Go to the overview")
        answer = notice(request, "Too many changes", text, status=429, link=home)
        answer["Retry-After"] = str(RETRY_AFTER_S)
        return answer
