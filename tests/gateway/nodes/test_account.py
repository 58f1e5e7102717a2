"""The account of a node against a plain model, and what it makes of step frames."""

from __future__ import annotations

from math import inf

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.nodes.measured.account import (
    ACTIVE_WEIGHT,
    JobBooking,
    NoCredit,
    NodeAccount,
)
from inference.contract.frames import Step
from tests.support.fleet import make_step


def step(**fields: object) -> Step:
    return msgspec.structs.replace(make_step(), **fields)


def test_our_whole_account_counts_while_the_node_says_nothing_of_prompts() -> None:
    account = NodeAccount(8)
    account.book(500)
    account.on_step(step(waiting_tokens=0), 1.0)
    assert account.queued_tokens == 500


def test_prefill_progress_takes_tokens_off() -> None:
    account = NodeAccount(8)
    account.book(5000)
    account.on_step(step(waiting_tokens=3000, prefilled_tokens=2000), 1.0)
    account.on_step(step(waiting_tokens=1000, prefilled_tokens=2000), 2.0)
    assert account.queued_tokens == 1000


def test_a_job_that_a_frame_may_not_know_of_still_counts() -> None:
    account = NodeAccount(8)
    account.book(1000)
    account.on_step(step(waiting_tokens=0, prefilled_tokens=1000), 1.0)
    account.on_step(step(waiting_tokens=0), 2.0)
    booking = account.book(700)
    # Made before the job arrived, and sent after we had booked it.
    account.on_step(step(waiting_tokens=0), 3.0)
    assert account.queued_tokens == 700
    account.on_step(step(waiting_tokens=700), 4.0)
    account.on_step(step(waiting_tokens=200, prefilled_tokens=500), 5.0)
    assert account.queued_tokens == 200
    booking.prefilled()
    account.on_step(step(waiting_tokens=0, prefilled_tokens=200), 6.0)
    assert account.queued_tokens == 0


def test_what_other_gateways_have_there_counts() -> None:
    account = NodeAccount(8)
    account.book(100)
    told = step(waiting_tokens=900, prefilled_tokens=10, others_queued_tokens=800, others_active=3)
    account.on_step(told, 1.0)
    assert account.queued_tokens == 100 + 800
    assert account.others_active == 3
    assert account.ready.wait_s == pytest.approx(
        900 * account.ready.token_s + ACTIVE_WEIGHT * 5 * account.speed.step_s
    )


def test_full_steps_weigh_most_in_the_rate() -> None:
    account = NodeAccount(8)
    for _ in range(50):
        account.on_step(step(prefilled_tokens=2000, step_us=100_000), 1.0)
        account.on_step(step(prefilled_tokens=2, step_us=10_000), 1.0)
    assert account.speed.prefill_tokens_per_s == pytest.approx(20_000, rel=0.02)


def test_steps_without_prompts_tell_the_time_of_a_decode() -> None:
    account = NodeAccount(8)
    account.on_step(step(prefilled_tokens=2000, step_us=100_000), 1.0)
    account.on_step(step(running=0, step_us=7), 1.0)
    assert not account.speed.learned_step
    account.on_step(step(running=2, step_us=8000), 1.0)
    assert account.speed.step_s == pytest.approx(0.008)


def test_what_is_learned_is_not_assumed() -> None:
    account = NodeAccount(8)
    account.assume(123.0, 4.0)
    assert (account.speed.prefill_tokens_per_s, account.speed.step_s) == (123.0, 4.0)
    account.on_step(step(prefilled_tokens=100, step_us=100_000), 1.0)
    account.assume(321.0, 5.0)
    assert account.speed.prefill_tokens_per_s == pytest.approx(1000)
    assert account.speed.step_s == 5.0


def test_no_claim_of_speed_is_beyond_bounds() -> None:
    account = NodeAccount(8)
    account.on_step(step(prefilled_tokens=10**15, step_us=1), 1.0)
    assert account.speed.prefill_tokens_per_s == 1e7
    account = NodeAccount(8)
    account.on_step(step(prefilled_tokens=1, step_us=2**31), 1.0)
    assert account.speed.prefill_tokens_per_s == 1.0


def test_room_is_what_is_free_less_what_waits_for_it() -> None:
    account = NodeAccount(8, block_size=16, kv_blocks=100)
    assert (account.ready.room_tokens, account.ready.empty_tokens) == (inf, inf)
    account.book(100)
    account.on_step(step(kv_free_blocks=50, kv_cached_blocks=40, oldest_block_s=3.0), 10.0)
    assert account.ready.room_tokens == 50 * 16 - 100
    assert account.ready.empty_tokens == 10 * 16 - 100
    assert account.ready.oldest_at_s == 7.0


def test_an_engine_without_a_cache_has_room() -> None:
    account = NodeAccount(8, block_size=16, kv_blocks=0)
    account.on_step(step(kv_free_blocks=0), 1.0)
    assert (account.ready.room_tokens, account.ready.empty_tokens) == (inf, inf)


ACTIONS = st.tuples(st.sampled_from(["book", "prefilled", "release", "step"]), st.integers(0, 3000))


@given(st.lists(ACTIONS, max_size=60))
def test_it_stays_within_bounds_and_ends_at_zero(actions: list[tuple[str, int]]) -> None:
    account, bookings, now_s = NodeAccount(5), list[JobBooking](), 0.0
    waiting: dict[int, int] = {}
    for action, number in actions:
        now_s += 0.1
        if action == "book":
            if account.credits_left:
                waiting[len(bookings)] = number
                bookings.append(account.book(number))
            else:
                with pytest.raises(NoCredit):
                    account.book(number)
        elif action == "step":
            account.on_step(step(waiting_tokens=number, prefilled_tokens=number % 3), now_s)
        elif bookings:
            place = number % len(bookings)
            waiting.pop(place, None)
            getattr(bookings[place], action)()
        assert 0 <= account.queued_tokens <= sum(waiting.values())
        assert 0 <= account.active <= 5
        assert account.ready.wait_s > 0
    for booking in bookings:
        booking.release()
    assert (account.active, account.queued_tokens) == (0, 0)
