"""Celery's door to the watch over canaries: the task is named after the service it calls."""

import structlog
from celery import shared_task

from controlplane.routing import services
from controlplane.telemetry.reading import TooMuchToRead

log = structlog.get_logger(__name__)


@shared_task(name="routing.ruleset_canary_watch")
def ruleset_canary_watch() -> int:
    """Canaries ended."""
    try:
        ended = services.ruleset_canary_watch()
    except TooMuchToRead:
        log.warning("canary_not_compared")
        return 0
    if ended is not None:
        log.warning("canary_ended", version=ended.version)
    return int(ended is not None)


EVERY_S = {"routing.ruleset_canary_watch": 30.0}
