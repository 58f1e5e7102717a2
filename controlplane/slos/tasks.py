"""Celery's door to objectives: each task is named after the service it calls."""

BEAT_SCHEDULE: dict[str, dict[str, object]] = {}
