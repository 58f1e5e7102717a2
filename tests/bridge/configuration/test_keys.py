"""The Keys port: each way a key can be wrong has its message, and none tells too much."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.bridge.configuration.keys import (
    EXPIRED,
    MALFORMED,
    PLAY_ENDED,
    REVOKED,
    SNAPSHOT_AGE_S_MAX,
    UNKNOWN,
    SnapshotKeys,
)
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.snapshot import EMPTY, KeyRecord, ProjectRecord, Snapshot
from controlplane.kernel.clock import wall_s
from controlplane.kernel.keys.format import (
    ALPHABET,
    Credential,
    digest,
    new_credential,
    parse_credential,
    redacted,
)
from controlplane.kernel.keys.playtoken import LIFETIME_S, PlayGrant, open_grant, sign_grant

PEPPER = b"pepper" * 6
PLAY_SECRET = b"play" * 8
ORGANIZATION, PROJECT, USER, NAMED = ("a" * 32, "b" * 32, "c" * 32, "d" * 32)


@dataclass
class Fixed:
    """A configuration that does not move."""

    current: Snapshot
    age_s: float = 0.0

    @property
    def now_s(self) -> float:
        """This machine's own."""
        return wall_s()


def record(credential: Credential, **changes: object) -> KeyRecord:
    fields: dict[str, object] = {
        "key_id": credential.key_id,
        "id": "e" * 32,
        "digest": digest(credential.text, PEPPER),
        "organization": ORGANIZATION,
        "project": PROJECT,
        "label": "k",
        "expires_at_s": wall_s() + 60,
        "revoked": False,
        "models": None,
        "budgets": (),
        "limits_id": "e" * 32,
    }
    return KeyRecord(**(fields | changes))  # type: ignore[arg-type]


def snapshot(*keys: KeyRecord) -> Snapshot:
    project = ProjectRecord(id=PROJECT, organization=ORGANIZATION, safety="off", salt=b"")
    return Snapshot(
        version=1,
        keys={key.key_id: key for key in keys},
        projects={PROJECT: project},
        models={},
        rules=(),
        budgets=frozenset({ORGANIZATION, NAMED}),
    )


def keys(held: Snapshot, age_s: float = 0.0) -> SnapshotKeys:
    return SnapshotKeys(Fixed(held, age_s), pepper=PEPPER, play_secret=PLAY_SECRET)


def refusal(port: SnapshotKeys, presented: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        port.check(presented)
    return caught.value


def test_a_good_key_gives_its_record() -> None:
    credential = new_credential()
    held = record(credential)
    assert keys(snapshot(held)).check(credential.text) is held


def test_each_fault_has_its_message_and_all_are_invalid_api_key() -> None:
    good, other = new_credential(), new_credential()
    forged = record(good, digest=digest(other.text, PEPPER))
    typo = good.text[:-1] + ("0" if good.text[-1] != "0" else "1")
    cases = [
        (snapshot(record(good)), "", MALFORMED),
        (snapshot(record(good)), "sk-something-else", MALFORMED),
        (snapshot(record(good)), typo, MALFORMED),
        (snapshot(record(good)), other.text, UNKNOWN),
        (snapshot(forged), good.text, UNKNOWN),
        (snapshot(record(good, revoked=True)), good.text, REVOKED),
        (snapshot(record(good, expires_at_s=wall_s() - 1)), good.text, EXPIRED),
    ]
    for held, presented, message in cases:
        refused = refusal(keys(held), presented)
        assert (refused.status, refused.code, refused.message) == (401, "invalid_api_key", message)
        assert ("x-should-retry", "false") in refused.headers
    assert len({message for _, _, message in cases}) == 4
    assert all(message.startswith("Incorrect API key provided") for _, _, message in cases)


def test_only_the_holder_of_the_secret_learns_that_a_key_is_revoked() -> None:
    good, other = new_credential(), new_credential()
    held = snapshot(record(good, revoked=True, digest=digest(other.text, PEPPER)))
    assert refusal(keys(held), good.text).message == UNKNOWN


def test_an_old_or_missing_configuration_is_503_and_not_401() -> None:
    good = new_credential()
    for port in (keys(snapshot(record(good)), SNAPSHOT_AGE_S_MAX + 1), keys(EMPTY, float("inf"))):
        assert refusal(port, good.text).status == 503
        assert refusal(port, "nonsense").status == 401


def grant(**changes: object) -> PlayGrant:
    fields: dict[str, object] = {
        "user": USER,
        "organization": ORGANIZATION,
        "project": PROJECT,
        "models": frozenset({"m"}),
        "budgets": (NAMED,),
        "expires_at_s": wall_s() + 60,
    }
    return PlayGrant(**(fields | changes))  # type: ignore[arg-type]


def test_a_playground_token_needs_no_lookup_and_spends_from_its_budgets() -> None:
    made = keys(snapshot()).check(sign_grant(grant(), PLAY_SECRET))
    assert (made.id, made.project, made.models) == (USER, PROJECT, frozenset({"m"}))
    assert made.budgets == (NAMED, ORGANIZATION)
    assert made.limits.requests_per_min is not None


def test_bad_playground_tokens() -> None:
    port = keys(snapshot())
    assert refusal(port, sign_grant(grant(), b"other" * 8)).message == MALFORMED
    ended = sign_grant(grant(expires_at_s=wall_s() - 1), PLAY_SECRET)
    assert refusal(port, ended).message == PLAY_ENDED
    foreign = sign_grant(grant(organization="f" * 32), PLAY_SECRET)
    assert refusal(port, foreign).message == UNKNOWN
    gone = sign_grant(grant(project="f" * 32), PLAY_SECRET)
    assert refusal(port, gone).message == UNKNOWN


def test_tokens_of_who_was_removed_are_void_and_later_ones_are_not() -> None:
    removed = msgspec.structs.replace(snapshot(), tokens_from={USER: wall_s() - 60})
    before = sign_grant(grant(expires_at_s=wall_s() + LIFETIME_S - 90), PLAY_SECRET)
    assert refusal(keys(removed), before).message == PLAY_ENDED
    after = sign_grant(grant(expires_at_s=wall_s() + LIFETIME_S - 30), PLAY_SECRET)
    assert keys(removed).check(after).id == USER
    other = sign_grant(grant(expires_at_s=wall_s() + LIFETIME_S - 90, user="e" * 32), PLAY_SECRET)
    assert keys(removed).check(other).id == "e" * 32


@given(st.integers(0, 400), st.characters(codec="ascii"))
def test_a_playground_token_with_any_letter_changed_is_refused(place: int, letter: str) -> None:
    token = sign_grant(grant(), PLAY_SECRET)
    place %= len(token)
    changed = token[:place] + letter + token[place + 1 :]
    try:
        opened = open_grant(changed, PLAY_SECRET)
    except ValueError:
        return
    assert opened == open_grant(token, PLAY_SECRET)
    assert changed == token


@given(st.text(max_size=120))
def test_any_text_is_refused_without_an_error(text: str) -> None:
    for presented in (text, f"sk_sluice_{text}", f"play_sluice_{text}", f"play_sluice_{text}.x"):
        assert refusal(keys(snapshot()), presented).status == 401


@given(st.integers(0, 200), st.sampled_from(ALPHABET + "_-é"))
def test_a_changed_letter_breaks_the_checksum(place: int, letter: str) -> None:
    text = new_credential().text
    place %= len(text)
    changed = text[:place] + letter + text[place + 1 :]
    assert changed == text or parse_credential(changed) is None


def test_nothing_of_a_key_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    good = new_credential()
    port = keys(snapshot(record(good, revoked=True)))
    refused = refusal(port, good.text)
    secret = good.text.rsplit("_", 2)[1]
    for text in (caplog.text, str(refused), repr(refused), str(refused.body), redacted(good)):
        assert secret not in text
