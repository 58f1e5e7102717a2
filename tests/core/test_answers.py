"""Answers take their fields from what they tell of, in the order of their shape."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from enum import StrEnum
from types import SimpleNamespace
from typing import TypedDict

import pytest

from controlplane.core.answers import answer_of, moment_text
from controlplane.core.api.views import JsonOut
from controlplane.kernel.ids import ApiKeyId, public_id

ID = uuid.UUID(int=7)
MADE, DUE = datetime(2026, 1, 1, tzinfo=UTC), date(2026, 11, 2)


class Colour(StrEnum):
    """One of two."""

    RED = "red"


class ThingJson(TypedDict):
    """What a thing has."""

    id: ApiKeyId
    colour: str
    made_at: datetime | None
    due_on: date


class WholeThingJson(ThingJson):
    """With its parts."""

    parts: list[int]


def test_fields_are_attributes_as_text_in_the_order_of_the_shape() -> None:
    thing = SimpleNamespace(due_on=DUE, id=ID, colour=Colour.RED, made_at=MADE)
    made = answer_of(WholeThingJson, thing, parts=[1, 2])
    assert list(made.items()) == [
        ("id", public_id("key", ID)),
        ("colour", "red"),
        ("made_at", MADE),
        ("due_on", DUE),
        ("parts", [1, 2]),
    ]
    assert type(made["colour"]) is str


def test_what_is_given_comes_before_the_attribute() -> None:
    thing = SimpleNamespace(id=None, colour="red", due_on="", made_at=None)
    assert answer_of(ThingJson, thing, id=ID)["id"] == public_id("key", ID)


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (MADE, "2026-01-01T00:00:00Z"),
        (datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), "2026-01-01T00:00:00Z"),
        (MADE.replace(microsecond=250), "2026-01-01T00:00:00.000250Z"),
    ],
)
def test_moments_are_written_in_one_form_wherever_they_come_from(
    moment: datetime, text: str
) -> None:
    assert moment_text(moment) == text
    assert JsonOut().render({"at": moment, "on": DUE}) == b'{"at":"%s","on":"2026-11-02"}' % (
        text.encode()
    )


def test_a_name_that_the_shape_has_not_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="ThingJson has no parts"):
        answer_of(ThingJson, SimpleNamespace(), parts=[])


def test_an_id_in_a_field_that_declares_no_kind_is_a_mistake() -> None:
    thing = SimpleNamespace(id=ID, colour=ID, due_on="", made_at=None)
    with pytest.raises(TypeError, match="no kind of id"):
        answer_of(ThingJson, thing)


def test_an_attribute_that_is_missing_is_a_mistake() -> None:
    with pytest.raises(AttributeError, match="id"):
        answer_of(ThingJson, SimpleNamespace())
