"""How many failed attempts at sign-in are too many: by account and address, by each of them alone.

The pair is what Axes counts. One account from many addresses, and many accounts from one address,
have wider bounds: a stranger must not lock a user out with a handful of tries.
"""

from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.helpers import get_client_username
from axes.models import AccessAttempt
from django.conf import settings
from django.db.models import QuerySet, Sum
from django.http import HttpRequest
from django.utils import timezone

ACCOUNT_FAILURES_MAX = 50
ADDRESS_FAILURES_MAX = 100


class SignInThrottle(AxesDatabaseHandler):  # type: ignore[misc]
    """Axes' handler with two bounds more; within `AXES_COOLOFF_TIME`, as the first."""

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
