"""What a version is, whatever it holds: a draft changes, all later is kept as it was.

A trigger on each table holds the states to their order.
"""

from django.conf import settings
from django.db import models

from controlplane.core.models import BaseModel

NOTE_CHARS_MAX = 200


class State(models.TextChoices):
    """Where a version is: at most one is published, and at most one on trial beside it."""

    DRAFT = "draft"
    CANARY = "canary"
    PUBLISHED = "published"
    RETIRED = "retired"


class Version(BaseModel):
    """One version of something; which one, and what it holds, a model of its own says.

    `revision` counts a draft's changes. `copy_of` is the version that a rollback brought back.
    `share_permille` is how much a canary gets.
    """

    version = models.PositiveIntegerField()
    state = models.CharField(max_length=9, choices=State.choices, default=State.DRAFT)
    note = models.CharField(max_length=NOTE_CHARS_MAX, default="", blank=True)
    revision = models.PositiveIntegerField(default=1)
    share_permille = models.PositiveSmallIntegerField(default=0)
    copy_of = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True
    )
    published_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    def change(self, **fields: object) -> None:
        for name, value in fields.items():
            setattr(self, name, value)
        self.save(update_fields=fields)

    def retire(self) -> None:
        self.change(state=State.RETIRED)
