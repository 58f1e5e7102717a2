"""`GET /v1/key`: a developer sees what the key in hand is for and what is left of it."""

from __future__ import annotations

from controlplane.gateway.ports import Allowance, BudgetRoom, KeyStanding, Room
from controlplane.kernel.ids import public_id
from tests.support.ports import KEY, ORGANIZATION, make_key
from tests.support.serving import Serving

USD = 10**9


def budget(scope: str, limit: int, spent: int, held: int = 0, period: str = "none") -> BudgetRoom:
    return BudgetRoom(
        scope=scope,  # type: ignore[arg-type]
        limit_nano=limit,
        spent_nano=spent,
        held_nano=held,
        period=period,
        turns_at_s=None if period == "none" else 1_900_000_000.0,
    )


async def test_everything_about_the_key_is_told(bare: Serving) -> None:
    bare.under_test.limiter.answer = Allowance(
        allowed=True,
        rooms=(Room("requests", "key", 60, 59, 1.0), Room("tokens", "project", 9, 2, 4)),
    )
    budgets = (
        budget("key", 5 * USD, 2 * USD, USD, "month"),
        budget("organization", 9 * USD, 8 * USD),
    )
    bare.under_test.standings.standing = KeyStanding(
        budgets=budgets, day_nano=1, week_nano=USD, month_nano=2 * USD
    )
    bare.under_test.keys.keys[KEY] = make_key(
        models=frozenset({"b", "a"}),
        endpoints=frozenset({"chat", "key"}),
        networks=("127.0.0.0/8",),
        tags=frozenset({"night"}),
    )
    answer = await bare.client.get("/v1/key")
    assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
    told = answer.json()["data"]
    assert (told["object"], told["label"]) == ("key", "alice")
    assert told["organization"] == public_id("org", ORGANIZATION)
    assert told["scopes"] == {
        "models": ["a", "b"],
        "endpoints": ["chat", "key"],
        "networks": ["127.0.0.0/8"],
        "tags": ["night"],
        "priority": "normal",
    }
    assert [(one["scope"], one["dimension"], one["remaining"]) for one in told["limits"]] == [
        ("key", "requests", 59),
        ("project", "tokens", 2),
    ]
    assert (told["limit"], told["limit_reset"], told["limit_remaining"]) == (5.0, "month", 1.0)
    assert told["usage_nano"] == {"day": 1, "week": USD, "month": 2 * USD}
    first, organization = told["budgets"]
    assert (first["remaining_nano"], first["resets_at"]) == (2 * USD, 1_900_000_000.0)
    assert (organization["remaining_nano"], organization["resets_at"]) == (USD, None)


async def test_a_key_without_limits_says_so(bare: Serving) -> None:
    told = (await bare.client.get("/v1/key")).json()["data"]
    assert (told["limit"], told["limit_remaining"], told["limit_reset"]) == (None, None, None)
    assert told["limits"] == told["budgets"] == []
    assert told["scopes"]["models"] is None and "chat" in told["scopes"]["endpoints"]


async def test_it_takes_a_key_that_may(bare: Serving) -> None:
    assert (
        await bare.client.get("/v1/key", headers={"authorization": "Bearer x"})
    ).status_code == 401
    assert (await bare.client.post("/v1/key")).status_code == 405
    bare.under_test.keys.keys[KEY] = make_key(endpoints=frozenset({"chat"}))
    assert (await bare.client.get("/v1/key")).json()["error"]["code"] == "endpoint_not_allowed"


async def test_without_the_ledger_nothing_is_made_up(bare: Serving) -> None:
    bare.under_test.standings.away = True
    answer = await bare.client.get("/v1/key")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "ledger_unavailable")
