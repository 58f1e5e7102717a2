"""`/api/insights/…`: hygiene, the stage map, comparisons and the capacity worksheet as JSON."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import TypedDict

from django.core.exceptions import ValidationError
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.api import ApiView
from controlplane.core.api_schema import operation
from controlplane.insights.hygiene import DAYS_DEFAULT, DAYS_MAX, KeyHygiene, Waste, hygiene_read
from controlplane.telemetry.reading import TooMuchToRead

DAYS = OpenApiParameter("days", int, description=f"1 to {DAYS_MAX}; {DAYS_DEFAULT} if left out.")


class TooMuch(APIException):
    """The range could not be summed within the bound."""

    status_code = 503
    default_detail = "This could not be read in time; ask for fewer days."


class WasteJson(TypedDict):
    """One kind of finding; savings are estimates, scaled from the requests looked at."""

    kind: str
    what: str
    fix: str
    requests: int
    tokens: int
    saves_nano: int


class KeyHygieneJson(TypedDict):
    """One key, or all of them together; `key` is null for those."""

    key: str | None
    label: str
    requests: int
    looked_at: int
    tokens: int
    nano: int
    findings: list[WasteJson]


class HygieneJson(TypedDict):
    """Of whole hours."""

    start: str
    end: str
    whole: KeyHygieneJson
    keys: list[KeyHygieneJson]


class HygieneView(ApiView):
    """`GET organizations/<id>/hygiene`."""

    @operation(answer=HygieneJson, params=[DAYS])
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """What each key spends for nothing, and the fix.

        Kinds overlap: do not add their savings up.
        """
        start, end = days_of(request)
        try:
            found = hygiene_read(
                actor=self.actor(), organization=organization_id, start=start, end=end
            )
        except TooMuchToRead as error:
            raise TooMuch from error
        return Response(
            {
                "start": start.isoformat(),
                "end": end.isoformat(),
                "whole": _key_json(found.whole),
                "keys": [_key_json(one) for one in found.keys],
            }
        )


def days_of(request: Request) -> tuple[datetime, datetime]:
    """The last so many days, up to the end of the present hour; raises 400 that names `days`."""
    text = request.query_params.get("days", str(DAYS_DEFAULT))
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:4]) <= DAYS_MAX):
        raise ValidationError({"days": [f"A number from 1 to {DAYS_MAX}."]})
    end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return end - timedelta(days=int(text[:4])), end


def _key_json(one: KeyHygiene) -> KeyHygieneJson:
    return {
        "key": None if one.key is None else str(one.key),
        "label": one.label,
        "requests": one.requests,
        "looked_at": one.looked,
        "tokens": one.tokens,
        "nano": one.nano,
        "findings": [_waste_json(waste) for waste in one.wastes],
    }


def _waste_json(waste: Waste) -> WasteJson:
    return {
        "kind": waste.kind,
        "what": waste.what,
        "fix": waste.fix,
        "requests": waste.requests,
        "tokens": waste.tokens,
        "saves_nano": waste.nano,
    }
