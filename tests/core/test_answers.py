"""Answers take their fields from what they tell of, in the order of their shape."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from enum import StrEnum
from types import SimpleNamespace
from typing import TypedDict

import pytest

from controlplane.core.answers import answer_of

ID = uuid.UUID(int=7)


class Colour(StrEnum):
    """One of two."""

    RED = "red"


class ThingJson(TypedDict):
    """What a thing has."""

    id: str
    colour: str
    made_at: str | None
    due_on: str


class WholeThingJson(ThingJson):
    """With its parts."""

    parts: list[int]


class SeenJson(TypedDict):
    """When it was seen."""

    at: datetime | None


def test_fields_are_attributes_as_text_in_the_order_of_the_shape() -> None:
    thing = SimpleNamespace(
        due_on=date(2026, 11, 2), id=ID, colour=Colour.RED, made_at=datetime(2026, 1, 1, tzinfo=UTC)
    )
    made = answer_of(WholeThingJson, thing, parts=[1, 2])
    assert list(made.items()) == [
        ("id", str(ID)),
        ("colour", "red"),
        ("made_at", "2026-01-01T00:00:00+00:00"),
        ("due_on", "2026-11-02"),
        ("parts", [1, 2]),
    ]
    assert type(made["colour"]) is str


def test_what_is_given_comes_before_the_attribute() -> None:
    thing = SimpleNamespace(id=None, colour="red", due_on="", made_at=None)
    assert answer_of(ThingJson, thing, id=ID)["id"] == str(ID)


def test_a_moment_that_is_declared_as_one_stays_one() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert answer_of(SeenJson, SimpleNamespace(at=at)) == {"at": at}


def test_a_name_that_the_shape_has_not_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="ThingJson has no parts"):
        answer_of(ThingJson, SimpleNamespace(), parts=[])


def test_an_attribute_that_is_missing_is_a_mistake() -> None:
    with pytest.raises(AttributeError, match="id"):
        answer_of(ThingJson, SimpleNamespace())
