"""Searching the hub: what is asked and found, and what is told where it cannot be."""

from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.test import override_settings

from controlplane.core.audit.entries import OPERATOR
from controlplane.hosts.hubsearch import FOUND_MAX, WORDS_CHARS_MAX, HubModel, hub_search
from tests.support.hub import Hub, running_hub
from tests.support.people import make_cast

LISTED = [{"id": f"owner/small-{number}", "downloads": number} for number in range(FOUND_MAX + 5)]


def refused(words: str, url: str) -> str:
    """The words of the refusal."""
    with override_settings(HUB_URL=url), pytest.raises(ValidationError) as told:
        hub_search(actor=OPERATOR, words=words)
    return str(told.value.message_dict["words"])


def test_a_bounded_list_is_asked_for_and_read() -> None:
    odd = [{"id": "small/../../etc"}, {"id": "small"}]
    with running_hub(Hub(listed=[*odd, *LISTED])) as hub, override_settings(HUB_URL=hub.url):
        found = hub_search(actor=OPERATOR, words=" small ")
    assert [one.id for one in found] == [str(one["id"]) for one in LISTED[:FOUND_MAX]]
    assert found[3] == HubModel(id="owner/small-3", downloads=3)
    [asked] = hub.searches
    assert asked["search"] == ["small"] and asked["limit"] == [str(FOUND_MAX)]
    assert asked["filter"] == ["safetensors"] and "gated" in asked["expand"]


def test_what_cannot_be_searched_is_told() -> None:
    hub = Hub(listed=LISTED)
    with running_hub(hub):
        for words in ("x", "x" * (WORDS_CHARS_MAX + 1)):
            assert "Type 2 to" in refused(words, hub.url)
        for broken, told in (
            ((503, b"[]"), "answered 503"),
            ((200, b"<html>"), "no list of models"),
            ((200, b'[{"id": 3}]'), "no list of models"),
        ):
            hub.broken = broken
            assert told in refused("small", hub.url)
    assert "not reached" in refused("small", hub.url)
    assert "Search is off" in refused("small", "")


def test_only_staff_search(database: str) -> None:
    with pytest.raises(PermissionDenied):
        hub_search(actor=make_cast().alice, words="small")
