"""Why a request went as it did: sentences from the record, its receipt and its ledger lines."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from controlplane.billing.ledger.accounts import receivable, revenue
from controlplane.billing.ledger.journal import journal_book
from controlplane.billing.ledger.models import EntryKind, JournalEntry, Transfer
from controlplane.billing.ledger.selectors import request_charge
from controlplane.catalog.models import PriceVersion
from controlplane.core.audit.entries import OPERATOR
from controlplane.gateway.s4_route.queue.request import NoRoomReason
from controlplane.kernel.receipt import NodeAttempt, PassedStep, Queued, Receipt, read_receipt
from controlplane.telemetry.models import RequestRecord
from controlplane.tenants.keys import apikey_create
from frontend.requests.refused import Door, Refused, limit_sentences, limit_short
from frontend.requests.why import Evidence, reasons
from frontend.shared.wordings import WORDINGS
from tests.browser.history import write_history
from tests.support.people import make_cast, signed_in

ROOT = Path(__file__).parents[3]
# Of the inference API; those of the control plane alone say so.
CODES = re.compile(r"^\| `(\w+)` \| \d{3} \| (?!control plane:)", re.MULTILINE)


def test_every_error_code_has_its_sentence() -> None:
    documented = set(CODES.findall((ROOT / "docs" / "errors.md").read_text())) - {"null"}
    # What is recorded where an error has no code.
    assert set(WORDINGS.refusals) == documented | {"bad_request"}


def _record(**said: Any) -> RequestRecord:
    usual = {"model": "tiny", "route": "direct", "node": "node-1", "status": 200, "finish": "stop"}
    counts = {"output_tokens": 40, "cost_nano": 46_320, "error_code": ""}
    return RequestRecord(**{**usual, **counts, **said})


def _line(kind: str, amount: int, **said: Any) -> Transfer:
    rates = {"input_pico": 150_000, "cached_pico": 30_000, "output_pico": 600_000}
    counts = {"uncached": 136, "cached": 64, "output": 40, "price_version": 3}
    return Transfer(
        kind=kind, amount=amount, model="tiny", **{"source": "", **rates, **counts, **said}
    )


def _told(record: RequestRecord, **known: Any) -> dict[str, str]:
    evidence = {"key_label": "nightly", "project": "web", "lines": (), **known}
    found = reasons(Evidence(record=record, **evidence))
    return {reason.step: " ".join(reason.sentences) for reason in found}


def test_an_ordinary_request_is_told_from_key_to_booking() -> None:
    lines = [_line("hold", 183_600, budgets=[uuid.uuid4()]), _line("settle", 46_320)]
    told = _told(_record(), lines=lines, receipt=Receipt(why="node-1 was the only node with room."))
    assert list(told) == ["Admitted", "Routed", "Placed", "Ended", "Priced", "Charged"]
    assert "“nightly” of project web" in told["Admitted"]
    assert "$0.000184, was held in 1 budget." in told["Admitted"]
    assert "136 not cached x $0.150 + 64 cached x $0.0300 + 40 out x $0.600" in told["Priced"]
    assert "= $0.000046320" in told["Priced"]
    assert "$0.000137 of the hold was released" in told["Charged"]


def test_rules_queues_and_retries_are_told_in_their_order() -> None:
    receipt = Receipt(
        asked="fast",
        node="node-1",
        steps=(
            PassedStep(1, "big", "gold", "server_is_overloaded"),
            PassedStep(2, "tiny", "default", "served"),
        ),
        attempts=(NodeAttempt("node-9", "the connection was lost"),),
        queue=Queued(wait_ms=1500, position=7, estimate_ms=1200),
        prompt="greeting v4",
    )
    told = _told(_record(route="cheap v3"), receipt=receipt)
    assert "template greeting v4" in told["Admitted"] and "nothing was held" in told["Admitted"]
    assert "The rule cheap v3 was the first to match, asked for as “fast”." in told["Routed"]
    assert "Step 1, big in pool gold, was passed over: server_is_overloaded." in told["Routed"]
    assert "Step 2 served it: tiny in pool default." in told["Routed"]
    assert "waited 1.50 s with 7 before it, which was expected to take 1.20 s" in told["Waited"]
    assert "node-9 did not finish: the connection was lost." in told["Retried"]
    assert "retried on node-1" in told["Retried"]


@pytest.mark.parametrize(
    ("status", "code", "output", "cost", "step", "words"),
    [
        (429, "insufficient_quota", 0, 0, "Refused", "was lower than its maximum cost"),
        (500, "node_lost", 9, 50, "Interrupted", "The output until then is charged."),
        (503, "", 0, 0, "Refused", "It was answered 503. Nothing is charged."),
        (499, "", 9, 50, "Ended", "The client disconnected"),
    ],
)
def test_what_was_refused_or_broken_off_says_so(
    status: int, code: str, output: int, cost: int, step: str, words: str
) -> None:
    record = _record(status=status, error_code=code, output_tokens=output, cost_nano=cost)
    assert words in _told(record)[step]


@pytest.mark.parametrize(
    ("limit", "short", "words"),
    [
        (
            {"kind": "requests", "limit": 60, "retry_after_ms": 740, "reset_ms": 59_740},
            "project, 60 requests a minute",
            "The project's limit of 60 requests a minute was used up. There was capacity"
            " 740 ms later; without other requests, all of it would be free 59.7 s later.",
        ),
        (
            {"kind": "tokens", "limit": 9_000, "asked": 812, "retry_after_ms": 20},
            "project, 9,000 tokens a minute",
            "There was capacity for its 812 tokens 20.0 ms later",
        ),
        (
            {"kind": "tokens", "limit": 500, "asked": 812, "retry_after_ms": 20},
            "project, 500 tokens a minute",
            "can never admit it: it counts as 812 tokens",
        ),
        (
            {"kind": "requests-day", "limit": 1_000, "retry_after_ms": 86_400, "reset_ms": 1},
            "project, 1,000 requests a day",
            "There was capacity 1 min 26 s later",
        ),
        (
            {"kind": "concurrency", "limit": 4},
            "project, 4 concurrent requests",
            "limit of 4 concurrent requests was reached: that many were in progress.",
        ),
        (
            {"kind": "budget", "budget": "0" * 32, "asked": 183_600},
            "project, its budget",
            "The project's budget was lower than its maximum cost, $0.000184.",
        ),
        (
            {"kind": "budget", "scope": "wallet", "asked": 183_600},
            "the organization's wallet",
            "The organization's prepaid wallet was lower than",
        ),
        (
            {"kind": "uncounted", "scope": "", "retry_after_ms": 1_000},
            "limits could not be counted",
            "Load was too high to check its limits in time.",
        ),
    ],
)
def test_a_limit_that_refused_is_told_with_its_figure_and_when_there_is_room(
    limit: dict[str, Any], short: str, words: str
) -> None:
    known = read_receipt(
        msgspec.json.encode({"rule": "r v1", "limit": {"scope": "project", **limit}})
    ).limit
    assert known is not None and limit_short(known) == short
    refused = Refused(short, limit_sentences(known), Door("/limits", "Change this limit"))
    record = _record(status=429, error_code="rate_limit_exceeded", output_tokens=0, cost_nano=0)
    told = _told(record, refused=refused)
    assert words in told["Refused"] and "requests or tokens a minute" not in told["Refused"]
    assert told["Admitted"].endswith("was valid, but the request was refused.")


def test_what_the_fleet_lacked_is_told_where_the_record_says_it() -> None:
    assert set(WORDINGS.lacks) == set(get_args(NoRoomReason))
    record = _record(status=503, error_code="server_is_overloaded", output_tokens=0, cost_nano=0)
    assert "and the queue were full." in _told(record, receipt=Receipt(lack="full"))["Refused"]
    for receipt in (Receipt(), Receipt(lack="sleep")):
        assert "or every attempt failed." in _told(record, receipt=receipt)["Refused"]


def test_a_receipt_without_a_readable_limit_names_none() -> None:
    for receipt in (b"", b"[1", b"{}", b"\xff", b'{"limit":{"kind":"mood"}}', b'{"limit":7}'):
        assert read_receipt(receipt).limit is None


@pytest.mark.parametrize(
    ("paid", "terms"),
    [
        ((150_000, 30_000, 600_000), "of tiny: $0.150 in"),
        ((75_000, 15_000, 300_000), "of tiny, times 0.5 for low priority: $0.0750 in"),
        ((225_000, 45_000, 900_000), "of tiny, times 1.5 for high priority: $0.225 in"),
    ],
)
def test_a_multiplied_price_names_its_multiplier(paid: tuple[int, ...], terms: str) -> None:
    names = ("input_pico", "cached_pico", "output_pico")
    listed = dict(zip(names, (150_000, 30_000, 600_000), strict=True))
    price = PriceVersion(version=3, batch_permille=500, priority_permille=1_500, **listed)
    line = _line("settle", 1, **dict(zip(names, paid, strict=True)))
    assert terms in _told(_record(), lines=[line], price=price)["Priced"]


def test_late_expired_released_and_reversed_lines_have_their_words() -> None:
    back = JournalEntry(amount=1_000, reason="wrong model", actor_label="alice")
    lines = [_line("hold", 9_000), _line("expire", 9_000), _line("late", 7_000, source="estimate")]
    told = _told(_record(), lines=lines, reversals=[back])
    assert "expired: gateway and node did not report" in told["Charged"]
    assert "charged later, from the node's report" in told["Charged"]
    assert "$0.00000100 was reversed by alice: wrong model" in told["Charged"]
    assert "estimated from the text" in told["Priced"]
    assert "released: nothing was" in _told(_record(), lines=[_line("release", 9_000)])["Charged"]
    assert "The hold is not resolved" in _told(_record(), lines=[_line("hold", 9_000)])["Charged"]


def test_the_page_tells_it_and_shows_what_was_given_back(database: str) -> None:
    cast = make_cast()
    key = apikey_create(actor=cast.alice, project=cast.project, label="nightly").key
    charges = {
        request: charge
        for request in write_history(cast, key, "tiny")[:8]
        if (charge := request_charge(organization=cast.acme.id, request=request))
    }
    request, nano = next(iter(charges.items()))
    journal_book(
        organization=cast.acme.id,
        kind=EntryKind.REVERSAL,
        debit=revenue("tiny"),
        credit=receivable(cast.acme.id),
        nano=nano // 2,
        reason="as agreed by mail",
        reverses=request,
        idempotency="once",
        actor=OPERATOR,
    )
    text = signed_in(cast.alice).get(f"/requests/{request.hex}").content.decode()
    assert re.search(r"Node 1 had \d+ prompt tokens", text)
    for words in ("What happened", "as agreed by mail", "reversal"):
        assert words in text, words
    # Bob develops: he sees that it was given back, not who wrote what to whom.
    text = signed_in(cast.bob).get(f"/requests/{request.hex}").content.decode()
    assert "reversal" in text and "was reversed" in text
    assert "as agreed by mail" not in text and OPERATOR.actor_label not in text
