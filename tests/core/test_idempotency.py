"""`Idempotency-Key` under /api/: once done, twice answered; failures and strangers keep nothing."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import msgspec
import psycopg
import pytest
from django.core.exceptions import ValidationError
from django.db import Error, connection, connections, transaction
from django.http import QueryDict
from django.test import Client

from controlplane.core.answers import LIMIT_MAX, PageAsk, page_ask
from controlplane.core.api import idempotency
from controlplane.core.models import KeptAnswer
from tests.support.money import rows, superuser_dsn
from tests.support.people import Cast, make_cast, signed_in

TOKENS = "/api/fleet/tokens"
WANTED = {"pool": "small"}
LOCK_POLLS_MAX = 5_000


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


@pytest.fixture
def stella(cast: Cast) -> Client:
    client = signed_in(cast.stella)
    assert client.put("/api/fleet/pools/small", {}, "application/json").status_code == 201
    return client


def post(client: Client, key: str, body: object = WANTED, path: str = TOKENS) -> Any:
    return client.post(
        path,
        msgspec.json.encode(body),
        content_type="application/json",
        headers={"Idempotency-Key": key},
    )


def made() -> int:
    return int(rows("SELECT count(*) FROM enrolment_tokens")[0][0])


def test_a_repeat_is_answered_as_the_first_was_and_does_nothing(stella: Client) -> None:
    first, second = post(stella, "a"), post(stella, "a")
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content and "token" in first.json()
    assert "Idempotency-Replayed" not in first
    assert second["Idempotency-Replayed"] == "true" and second["Cache-Control"] == "no-store"
    assert made() == 1
    assert post(stella, "b").json()["id"] != first.json()["id"]
    assert made() == 2


def test_another_request_with_the_same_key_is_told(stella: Client) -> None:
    post(stella, "a")
    refused = post(stella, "a", {**WANTED, "life_hours": 2})
    assert refused.status_code == 422
    assert list(refused.json()["error"]["fields"]) == ["Idempotency-Key"]
    assert made() == 1
    # The order of a body's fields and its spaces say nothing.
    same = stella.post(
        TOKENS, b'{ "pool":\n"small" }', "application/json", headers={"Idempotency-Key": "a"}
    )
    assert same.status_code == 201 and made() == 1


def test_keys_of_two_callers_and_two_routes_are_apart(stella: Client, cast: Cast) -> None:
    post(stella, "a")
    cast.alice.is_staff = True
    cast.alice.save(update_fields=["is_staff"])
    assert post(signed_in(cast.alice), "a").status_code == 201
    assert made() == 2
    token = post(stella, "a").json()
    ended = stella.delete(f"{TOKENS}/{token['id']}", headers={"Idempotency-Key": "a"})
    assert ended.json()["changed"] is True


def test_a_kept_answer_is_for_those_who_may_still(stella: Client, cast: Cast) -> None:
    """Its secret is not told again to who has lost the right since, whichever way."""
    assert post(stella, "a").status_code == 201
    rows("UPDATE users SET is_staff = false WHERE id = %s", cast.stella.id)
    assert post(stella, "a").status_code == 403
    alice, path = signed_in(cast.alice), f"/api/organizations/{cast.acme.id}/keys"
    wanted = {"project": str(cast.project.id), "label": "mine"}
    first = post(alice, "a", wanted, path)
    assert first.status_code == 201
    assert post(alice, "a", wanted, path).content == first.content
    rows("UPDATE memberships SET role = 'viewer' WHERE user_id = %s", cast.alice.id)
    assert post(alice, "a", wanted, path).status_code == 403
    rows("DELETE FROM memberships WHERE user_id = %s", cast.alice.id)
    assert post(alice, "a", wanted, path).status_code == 404


def test_what_failed_may_be_tried_again_with_its_key(stella: Client, cast: Cast) -> None:
    assert post(stella, "a", {"pool": "none-such"}).status_code == 400
    assert post(stella, "a", {"pool": 1}).status_code == 400
    assert post(signed_in(cast.alice), "a").status_code == 403
    assert post(Client(), "a").status_code == 401
    assert rows("SELECT count(*) FROM kept_answers") == [(0,)]
    assert post(stella, "a").status_code == 201


def test_a_twin_is_told_to_wait(stella: Client, cast: Cast) -> None:
    answers: list[int] = []

    def first() -> None:
        answers.append(post(signed_in(cast.stella), "a").status_code)
        connections.close_all()

    with psycopg.connect(superuser_dsn()) as stall:
        stall.execute("LOCK TABLE enrolment_tokens IN ACCESS EXCLUSIVE MODE")
        working = threading.Thread(target=first)
        working.start()
        until_somebody_waits()
        twin = post(stella, "a")
        assert (twin.status_code, twin["Retry-After"]) == (409, "1")
        stall.rollback()
        working.join()
    assert answers == [201]
    assert post(stella, "a")["Idempotency-Replayed"] == "true"
    assert made() == 1


def until_somebody_waits() -> None:
    for _ in range(LOCK_POLLS_MAX):
        if rows("SELECT pg_sleep(0.01), count(*) FROM pg_locks WHERE NOT granted")[0][1]:
            return
    raise AssertionError("nobody waits")


@pytest.mark.parametrize("key", ["", " ", "a b", "é", "k" * 256])
def test_odd_keys_are_refused(stella: Client, key: str) -> None:
    refused = post(stella, key)
    assert refused.status_code == 400
    assert list(refused.json()["error"]["fields"]) == ["Idempotency-Key"]
    assert post(stella, "k" * 255).status_code == 201


def test_a_kept_answer_shows_nothing(stella: Client) -> None:
    secret = post(stella, "a").json()["token"]
    ((body,),) = rows("SELECT body FROM kept_answers")
    assert secret.encode() not in bytes(body) and b"small" not in bytes(body)


def test_an_answer_that_is_too_long_is_not_done_twice(
    stella: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "ANSWER_BYTES_MAX", 10)
    assert post(stella, "a").status_code == 201
    again = post(stella, "a")
    assert again.status_code == 409 and "too large" in again.content.decode()
    assert made() == 1


def test_after_a_day_a_key_is_new_and_its_row_is_dropped(stella: Client) -> None:
    first = post(stella, "a").json()
    rows("UPDATE kept_answers SET created_at = created_at - interval '24 hours 1 second'")
    assert post(stella, "a").json()["id"] != first["id"]
    post(stella, "b")
    rows("UPDATE kept_answers SET created_at = created_at - interval '25 hours'")
    post(stella, "c")
    assert idempotency.answers_forget() == 2
    assert rows("SELECT count(*) FROM kept_answers") == [(1,)]


def test_reading_takes_no_key(stella: Client) -> None:
    for _ in range(2):
        answer = stella.get(TOKENS, headers={"Idempotency-Key": "a"})
        assert answer.status_code == 200 and "Idempotency-Replayed" not in answer


@pytest.mark.parametrize(
    ("query", "field"),
    [("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("after=x", "after")],
)
def test_a_page_that_cannot_be_is_told(query: str, field: str) -> None:
    with pytest.raises(ValidationError) as raised:
        page_ask(QueryDict(query).dict())
    assert list(raised.value.message_dict) == [field]
    assert page_ask({"limit": str(LIMIT_MAX)}) == PageAsk(limit=LIMIT_MAX)


def test_a_kept_answer_is_seen_by_its_own_request_alone(stella: Client) -> None:
    """Also a query that forgot to ask for one, as the role of pages and jobs."""
    assert post(stella, "a").status_code == 201
    ((own,),) = rows("SELECT id FROM kept_answers")
    other = uuid.UUID(int=1)
    for scope in ("", str(other)):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('app.attempt', %s, true)", [scope])
            assert not KeptAnswer.objects.exists()
            assert KeptAnswer.objects.filter(id=own).delete()[0] == 0
    with pytest.raises(Error, match="row-level security"):
        KeptAnswer.objects.create(id=other, payload=b"", status=201)
    with pytest.raises(Error, match="permission denied"):
        KeptAnswer.objects.update(status=200)
    assert rows("SELECT id FROM kept_answers") == [(own,)]
    assert post(stella, "a")["Idempotency-Replayed"] == "true"
