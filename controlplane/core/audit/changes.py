"""How many changes one person or key may make in an organization within a minute."""

import uuid
from datetime import timedelta

from django.conf import settings
from django.db.models.functions import Now
from rest_framework import exceptions

from controlplane.core.models import AuditEntry

WINDOW = timedelta(minutes=1)
RETRY_AFTER_S = 60
MESSAGE = "Too many changes in a minute. Try again in a minute."


class TooManyChanges(exceptions.Throttled):
    """One more change would be beyond the bound: a 429, and nothing has changed."""

    def __init__(self) -> None:
        super().__init__(wait=RETRY_AFTER_S, detail=MESSAGE)


def require_unhurried(actor_id: uuid.UUID, organization_id: uuid.UUID) -> None:
    """Return if they may make one more change; raises TooManyChanges.

    Each change has its audit row, and those are counted. Changes at the same moment may pass
    together: this is a brake, not a counter.
    """
    lately = AuditEntry.objects.filter(
        organization_id=organization_id, actor_id=actor_id, created_at__gt=Now() - WINDOW
    )
    if lately.count() >= settings.CHANGES_PER_MIN_MAX:
        raise TooManyChanges
