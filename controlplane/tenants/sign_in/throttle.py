"""How many failed attempts at sign-in are too many: by account and address, by each of them alone.

The pair is what Axes counts. One account from many addresses, and many accounts from one address,
have wider bounds: a stranger must not lock a user out with a handful of tries. Of what was
sent only account and address are kept: a form may hold a password in any of its fields.
"""

from copy import copy
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.helpers import get_client_username
from axes.models import AccessAttempt
from django.conf import settings
from django.db.models import QuerySet, Sum
from django.http import HttpRequest, QueryDict
from django.utils import timezone

from controlplane.core.audit.origin import client_address

OUTCOMES = ("axes_locked_out", "axes_credentials", "axes_failures_since_start")
ACCOUNT_FAILURES_MAX = 50
ADDRESS_FAILURES_MAX = 100


class SignInThrottle(AxesDatabaseHandler):  # type: ignore[misc]
    """Axes' handler with two bounds more; within `AXES_COOLOFF_TIME`, as the first."""

    def user_login_failed(
        self,
        sender: object,
        credentials: dict[str, Any],
        request: HttpRequest | None = None,
        **kwargs: Any,
    ) -> None:
        """Count it, by a request from which all that was sent is gone."""
        bare: Any = copy(request)
        if bare is not None:
            bare.GET = bare.POST = QueryDict()
            bare.axes_user_agent = bare.axes_http_accept = bare.axes_path_info = ""
        super().user_login_failed(sender, credentials, bare, **kwargs)
        for name in OUTCOMES if request is not None else ():
            setattr(request, name, getattr(bare, name))

    def get_failures(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> int:
        """Of the pair; at least as many as lock where one of the wider bounds is reached."""
        failures: int = super().get_failures(request, credentials)
        since = timezone.now() - settings.AXES_COOLOFF_TIME
        recent = AccessAttempt.objects.filter(attempt_time__gte=since)
        username = get_client_username(request, credentials)
        address = request.axes_ip_address  # type: ignore[attr-defined]
        beyond = (
            _failures(recent.filter(username=username)) >= ACCOUNT_FAILURES_MAX
            or _failures(recent.filter(ip_address=address)) >= ADDRESS_FAILURES_MAX
        )
        return max(failures, settings.AXES_FAILURE_LIMIT) if beyond else failures


def _failures(attempts: QuerySet[Any]) -> int:
    return attempts.aggregate(total=Sum("failures_since_start"))["total"] or 0


def account_of(request: HttpRequest, credentials: dict[str, Any] | None = None) -> str | None:
    """Whose sign-in it is, in the spelling by which accounts are found; None for no one's."""
    given = (credentials or request.POST).get("username")
    return given.strip().lower() if isinstance(given, str) else None


def address_of(request: HttpRequest) -> str | None:
    """From where; what our own proxies say counts, else everybody behind one would be one."""
    return client_address(request) or None
