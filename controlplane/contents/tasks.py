"""Celery's door to the retention of what was said."""

from celery import shared_task

from controlplane.contents import services


@shared_task(name="contents.forget")
def forget() -> int:
    """Rows dropped."""
    return services.contents_forget()


EVERY_S = {"contents.forget": 300.0}
