"""The verifier passes a true ledger and names each way in which one can be false."""

from __future__ import annotations

import io
import uuid
from collections.abc import AsyncIterator
from datetime import datetime

import pytest
from django.core.management import call_command

from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.bridge.record.recorder import PostgresRecorder
from inference.contract.frames import Report, Timing, Usage
from tests.support.money import (
    ALICE_KEY,
    ORG_A,
    ORG_C,
    PROJECT_A,
    add_budget,
    dsn,
    make_hold,
    rows,
    settlement_of,
)
from tests.support.records import make_record

TIMING = Timing(queue_us=1, prefill_us=1, decode_us=1, held_us=3)


@pytest.fixture
async def recorder(database: str) -> AsyncIterator[PostgresRecorder]:
    made = PostgresRecorder(dsn())
    made.start()
    yield made
    await made.close()


@pytest.fixture
async def story(ledger: PostgresLedger, recorder: PostgresRecorder) -> bytes:
    """One of everything: settled, released, overage, expired, late, unheld, open; all sealed."""
    add_budget(ALICE_KEY, 60, scope="key")
    add_budget(PROJECT_A, 1_000, scope="project")
    add_budget(ORG_A, 1_000, scope="organization")
    add_budget(ORG_C, 1_000, scope="organization", organization=ORG_C)
    settled = make_hold(50, ALICE_KEY, PROJECT_A, ORG_A)
    for hold, amount in (
        (settled, 41),
        (make_hold(10, PROJECT_A, ORG_A), 0),
        (make_hold(10, PROJECT_A, ALICE_KEY), 35),
        (make_hold(10, ORG_C, organization=ORG_C), 10),
    ):
        await ledger.hold(hold)
        await ledger.settle(settlement_of(hold, amount))
    await ledger.settle(settlement_of(make_hold(0), 12))
    for _ in range(2):
        expiring = make_hold(30, PROJECT_A, expires_s=0)
        await ledger.hold(expiring)
    rows("SELECT ledger_expire(10)")
    usage = Usage(prompt_tokens=5, cached_tokens=0, completion_tokens=6)
    assert await ledger.settle_report(
        Report(
            request=expiring.request,
            model="sluice-5m",
            usage=usage,
            timing=TIMING,
            finish="stop",
            ticket=b"",
        )
    )
    await ledger.hold(make_hold(7, PROJECT_A))
    recorder.record(
        make_record(
            request=settled.request,
            cost_nano=41,
            prompt_tokens=1,
            cached_tokens=0,
            output_tokens=10,
        )
    )
    assert await recorder.flush()
    rows("SELECT ledger_seal(clock_timestamp(), 6, 8) FROM generate_series(1, 3)")
    return settled.request


def verify() -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command("verify_ledger", "--strict", stdout=out)
    except SystemExit as exit_:
        return int(exit_.code or 0), out.getvalue()
    return 0, out.getvalue()


def tamper(statement: str, table: str) -> None:
    """What an intruder with the superuser's rights could do."""
    rows(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    rows(statement)
    rows(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def partition_of(request: bytes) -> str:
    name: str = rows(
        "SELECT tableoid::regclass::text FROM transfers WHERE request = %s",
        uuid.UUID(bytes=request),
    )[0][0]
    return name


def test_a_true_ledger_passes(story: bytes) -> None:
    status, text = verify()
    assert (status, text.count(" ok: ")) == (0, 7), text
    assert "L2 ok" in text
    assert "(16 checked)" in text


def test_an_empty_ledger_passes(database: str) -> None:
    assert verify()[0] == 0


@pytest.mark.parametrize(
    ("invariant", "statement"),
    [
        ("L1", "DELETE FROM {} WHERE kind = 'release'"),
        ("L1", "UPDATE {} SET amount = 9 WHERE kind = 'expire'"),
        ("L2", "UPDATE {} SET debit = 'receivable:someone' WHERE slot = 1"),
        ("L2", "UPDATE {} SET amount = amount - 1 WHERE kind = 'settle' AND amount = 41"),
        ("L3", "UPDATE {} SET amount = amount - 1 WHERE kind = 'late'"),
        ("L3", "UPDATE {} SET uncached = uncached + 1 WHERE kind = 'settle' AND amount = 12"),
        ("L6", "UPDATE {} SET output = 9, uncached = 5 WHERE amount = 41"),
        ("L7", "UPDATE {} SET source = 'gatewax' WHERE kind = 'settle' AND amount = 41"),
        ("L7", "UPDATE {} SET booked_at = booked_at + interval '1 us' WHERE kind = 'overage'"),
    ],
)
def test_a_forged_line_is_named(story: bytes, invariant: str, statement: str) -> None:
    name = partition_of(story)
    tamper(statement.format(name), name)
    status, text = verify()
    assert status == 1
    assert f"{invariant} ok" not in text, text
    assert "seal 1" in text or "seal 2" in text or "seal 3" in text


@pytest.mark.parametrize(
    ("invariant", "statement"),
    [
        ("L2", "UPDATE budgets SET posted = posted - 1 WHERE scope = 'project'"),
        ("L4", "UPDATE budgets SET held = held + 1 WHERE scope = 'project'"),
        ("L1", "DELETE FROM open_holds"),
        ("L5", "UPDATE open_holds SET expires_at = now() - interval '5 minutes'"),
        ("L3", "UPDATE request_records SET cost_nano = 42"),
        ("L7", "GRANT DELETE ON transfers TO sluice_app"),
    ],
)
def test_every_other_breach_is_named(story: bytes, invariant: str, statement: str) -> None:
    rows(statement)
    status, text = verify()
    assert status == 1
    assert f"{invariant} ok" not in text, text


def test_one_flipped_byte_is_named_with_its_seal(story: bytes) -> None:
    name = partition_of(story)
    tamper(
        f"UPDATE {name} SET model = 'sluice-5n', credit = 'revenue:sluice-5n'"
        " WHERE kind = 'overage'",
        name,
    )
    status, text = verify()
    assert status == 1
    assert "L7 1 BREACHES" in text
    assert "does not match" in text
    ((request, slot),) = rows("SELECT request, slot FROM transfers WHERE kind = 'overage'")
    assert f"request {request}, slot {slot}" in text


def test_a_missing_guard_is_named(story: bytes) -> None:
    name = partition_of(story)
    rows(f"ALTER TABLE {name} DISABLE TRIGGER never_truncated")
    status, text = verify()
    assert status == 1
    assert f"{name} lacks an enabled never_truncated" in text


def test_a_row_slipped_into_sealed_time_is_named(story: bytes) -> None:
    sealed_at: datetime = rows("SELECT min(booked_at) FROM transfers")[0][0]
    rows(
        "INSERT INTO transfers SELECT (t.r).* FROM (SELECT jsonb_populate_record(x,"
        " jsonb_build_object('request', %s::text, 'booked_at', %s::text)) AS r"
        " FROM transfers x WHERE kind = 'settle' AND amount = 12) AS t",
        str(uuid.UUID(bytes=make_hold(0).request)),
        sealed_at.isoformat(),
    )
    status, text = verify()
    assert status == 1
    assert "seal 1" in text


def test_without_strict_a_breach_is_only_printed(story: bytes) -> None:
    rows("DELETE FROM open_holds")
    out = io.StringIO()
    call_command("verify_ledger", stdout=out)
    assert "BREACHES" in out.getvalue()
