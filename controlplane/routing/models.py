"""Routing rules as versions: a set is published whole and never changes; the newest is in force."""

from django.db import models

from controlplane.core.models import BaseModel
from controlplane.tenants.models import User


class RuleSet(BaseModel):
    """One version of all rules."""

    version = models.PositiveIntegerField(unique=True)
    note = models.CharField(max_length=200, default="", blank=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True)

    class Meta:
        db_table = "rule_sets"

    def __str__(self) -> str:
        return f"rules v{self.version}"


class RouteRule(BaseModel):
    """Requests for `alias` (of `project`) go to `model` in `pool`; None matches everything."""

    rule_set = models.ForeignKey(RuleSet, on_delete=models.PROTECT, related_name="rules")
    position = models.PositiveIntegerField()
    name = models.CharField(max_length=100)
    alias = models.CharField(max_length=100, null=True, blank=True)
    project_id = models.UUIDField(null=True, blank=True)
    model = models.CharField(max_length=100)
    pool = models.CharField(max_length=50)

    class Meta:
        db_table = "route_rules"
        constraints = [
            models.UniqueConstraint(fields=["rule_set", "position"], name="rule_position_once")
        ]

    def __str__(self) -> str:
        return self.name
