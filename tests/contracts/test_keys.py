"""One suite for the Keys port: keys of a snapshot, and in memory as tests of the gateway use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest

from controlplane.bridge.configuration.keys import SnapshotKeys
from controlplane.gateway.ports import Keys
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.snapshot import KeyRecord, Snapshot
from controlplane.kernel.clock import wall_s
from controlplane.kernel.keys.format import digest, new_credential
from tests.support.ports import MemoryKeys, make_key, make_snapshot

PEPPER = b"pepper" * 6
Hidden = Callable[..., tuple[Keys, str, KeyRecord]]


@dataclass
class Fixed:
    """A configuration that does not move."""

    current: Snapshot
    age_s: float = 0.0

    @property
    def now_s(self) -> float:
        """This machine's own."""
        return wall_s()


def of_snapshot(**changes: object) -> tuple[Keys, str, KeyRecord]:
    """Keys, the text of the only one, and its record."""
    credential = new_credential()
    named = {"key_id": credential.key_id, "digest": digest(credential.text, PEPPER)}
    record = make_key(**named, **changes)
    snapshot = msgspec.structs.replace(make_snapshot("m"), keys={record.key_id: record})
    return (
        SnapshotKeys(Fixed(snapshot), pepper=PEPPER, play_secret=b"play" * 8),
        credential.text,
        record,
    )


def in_memory(**changes: object) -> tuple[Keys, str, KeyRecord]:
    """The same of the fake."""
    text, record = new_credential().text, make_key(**changes)
    return MemoryKeys(make_snapshot("m"), {text: record}), text, record


pytestmark = pytest.mark.parametrize("make", [in_memory, of_snapshot])


def refused(keys: Keys, presented: str) -> tuple[int, str | None]:
    with pytest.raises(Refusal) as error:
        keys.check(presented)
    return error.value.status, error.value.code


def test_a_good_key_gives_its_record(make: Hidden) -> None:
    for expires_at_s in (None, wall_s() + 60):
        keys, text, record = make(expires_at_s=expires_at_s)
        assert keys.check(text) == record
        assert record.project in keys.snapshot().projects


@pytest.mark.parametrize("changes", [{"revoked": True}, {"expires_at_s": wall_s() - 1}])
def test_a_key_that_has_ended_is_refused(make: Hidden, changes: dict[str, object]) -> None:
    keys, text, _ = make(**changes)
    assert refused(keys, text) == (401, "invalid_api_key")


def test_any_other_text_is_refused(make: Hidden) -> None:
    keys, text, _ = make()
    for other in ("", "x", text[:-1], text + "x", text.upper(), new_credential().text):
        assert refused(keys, other) == (401, "invalid_api_key")
