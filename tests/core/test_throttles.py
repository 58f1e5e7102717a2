"""The API's limits on requests: of a caller, of an address, at doors; shared, or without Redis."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from controlplane.core import counts as counting
from controlplane.core.api import throttles
from controlplane.core.counts import SharedCounts
from tests.support.people import make_cast, signed_in

LIMIT = 3


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> SharedCounts:
    """Empty, in a minute that does not end while the test runs."""
    now = time.time()
    made = SharedCounts()
    monkeypatch.setattr(throttles, "counts", made)
    monkeypatch.setattr(throttles.MinuteThrottle, "timer", staticmethod(lambda: now))
    return made


def limit(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """At most so many a minute."""
    monkeypatch.setattr(settings, f"API_{name}_PER_MIN", LIMIT)


def statuses(client: Client, path: str) -> list[int]:
    """What one call more than allowed are answered."""
    return [client.get(path).status_code for _ in range(LIMIT + 1)]


def test_a_caller_has_so_many_a_minute(
    database: str, counts: SharedCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast = make_cast()
    path = f"/api/organizations/{cast.acme.id}/members"
    limit(monkeypatch, "CALLER")
    alice = signed_in(cast.alice)
    assert statuses(alice, path) == [200, 200, 200, 429]
    # Of all their sessions together; others have their own.
    refused = signed_in(cast.alice).get(path)
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    error = refused.json()["error"]
    assert error["code"] == "rate_limit_exceeded" and "throttled" in error["message"]
    assert signed_in(cast.bob).get(path).status_code == 403
    assert refused.json().keys() == {"error"}


def test_figures_in_openais_shape_are_refused_in_it(
    database: str, counts: SharedCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, "CALLER")
    alice = signed_in(make_cast().alice)
    assert statuses(alice, "/v1/organization/projects")[-1] == 429
    error = alice.get("/v1/organization/projects").json()["error"]
    assert error["code"] == "rate_limit_exceeded" and "type" in error


def test_guesses_at_tokens_count_by_address(
    database: str, counts: SharedCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, "ADDRESS")
    guess = "Bearer wrong"
    path = "/api/fleet/pools"
    assert statuses(Client(HTTP_AUTHORIZATION=guess), path) == [401, 401, 401, 429]
    elsewhere = Client(HTTP_AUTHORIZATION=guess, REMOTE_ADDR="192.0.2.7")
    assert elsewhere.get(path).status_code == 401


def test_an_address_of_ipv6_counts_as_its_network(
    database: str, counts: SharedCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, "ADDRESS")
    found = [
        Client(REMOTE_ADDR=f"2001:db8::{host}").get("/api/fleet/pools").status_code
        for host in range(1, LIMIT + 2)
    ]
    assert found == [401, 401, 401, 429]


def test_enrolment_is_tried_a_few_times_a_minute(
    database: str, counts: SharedCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, "DOOR")
    wrong = {"token": "t", "name": "n", "pool": "default"}
    found = [
        Client().post("/api/fleet/enrol", wrong, content_type="application/json").status_code
        for _ in range(LIMIT + 1)
    ]
    assert found == [403, 403, 403, 429]


def test_processes_count_together(redis_url: str) -> None:
    one, other = SharedCounts(), SharedCounts()
    assert [one.add("k", 60), other.add("k", 60), one.add("k", 60)] == [1, 2, 3]
    assert other.add("l", 60) == 1


def test_without_redis_each_counts_by_itself_within_a_bound(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(settings, "REDIS_URL", f"unix://{tmp_path}/none.sock")
    monkeypatch.setattr(counting, "KEYS_MAX", 2)
    made = SharedCounts()
    assert [made.add("a", 60), made.add("a", 60), made.add("b", 60)] == [1, 2, 1]
    # A third key pushes out the one that was counted longest ago.
    assert [made.add("c", 60), made.add("b", 60), made.add("a", 60)] == [1, 2, 1]
    assert [made.add("d", 0), made.add("d", 0)] == [1, 1]
