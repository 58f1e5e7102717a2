"""A miss on a request's page: words for every cause, figures, and who may see what."""

from __future__ import annotations

import re
from pathlib import Path

from controlplane.gateway.after.misses import explain
from controlplane.gateway.after.misses.explain import VOLATILE
from controlplane.kernel.receipt import Miss, PromptChange
from frontend.requests.why import ELSEWHERE, read_miss
from frontend.shared.wordings import WORDINGS

WHOLE = Miss(
    cause="timestamp",
    missed_tokens=1_024,
    avoidable_tokens=992,
    block=0,
    token=14,
    cost_nano=744_000,
    prefill_ms=31.5,
    around=PromptChange(before="Today is ", was="Monday", now="<b>Tuesday</b>", after=". You"),
    elsewhere=True,
)


def test_a_miss_is_told_with_what_it_cost() -> None:
    found = read_miss(WHOLE, staff=True)
    assert found is not None
    assert "date or time" in found.sentence
    assert found.facts == [
        ("Not cached", "1,024 tokens"),
        ("Of these avoidable", "992 tokens"),
        ("Cost of the miss", "$0.000744"),
        ("Time to compute them", "31.5 ms"),
        ("Differs from", "token 15, block 1"),
    ]
    assert found.around is not None and found.around.now == "<b>Tuesday</b>"
    assert found.elsewhere == ELSEWHERE


def test_only_staff_sees_what_other_tenants_sent() -> None:
    found = read_miss(WHOLE, staff=False)
    assert found is not None
    assert found.elsewhere == ""


def test_without_kept_text_there_is_none() -> None:
    found = read_miss(Miss(cause="first_seen", missed_tokens=64), staff=False)
    assert found is not None
    assert (found.around, found.facts) == (None, [("Not cached", "64 tokens")])


def test_no_miss_and_an_unknown_cause_are_none() -> None:
    assert read_miss(None, staff=True) is None
    assert read_miss(Miss(cause="?"), staff=True) is None


def test_every_cause_has_words() -> None:
    source = Path(explain.__file__).read_text()
    named = set(re.findall(r'cause(?:=|, had = )"(\w+)"|cause = "(\w+)"', source))
    causes = {name for pair in named for name in pair if name} | {"text"}
    causes |= {kind for kind, _ in VOLATILE} | {"below_block_size", "no_cache"}
    assert causes == set(WORDINGS.causes)
