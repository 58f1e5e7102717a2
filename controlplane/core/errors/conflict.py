"""The error of a change that came too late: what it builds on is no longer so."""

from django.core.exceptions import ValidationError


class Conflict(ValidationError):
    """Someone else was first, or the thing is past the state in which this can be done to it."""
