"""Ids: UUIDv7, ordered by time, and their public form."""

from __future__ import annotations

import time
from uuid import UUID, uuid4

import pytest

from controlplane.kernel.ids import (
    ID_BYTES,
    PREFIXES,
    ApiKeyId,
    id_of_type,
    id_time_ms,
    new_request_id,
    prefix_of,
    public_id,
    public_request,
    uuid_of,
)


def test_shape_and_time() -> None:
    before_ms = time.time_ns() // 1_000_000
    made = new_request_id()
    after_ms = time.time_ns() // 1_000_000
    uuid = UUID(bytes=made)
    assert len(made) == ID_BYTES
    assert (uuid.version, uuid.variant) == (7, "specified in RFC 4122")
    assert before_ms <= id_time_ms(made) <= after_ms


def test_unique_and_in_order_of_time() -> None:
    first = [new_request_id() for _ in range(10_000)]
    assert len(set(first)) == len(first)
    time.sleep(0.002)
    assert max(first) < new_request_id()


def test_the_public_form_is_a_prefix_and_hex_digits() -> None:
    one = uuid4()
    assert public_id("key", one) == public_id("key", one.hex) == f"key_{one.hex}"
    assert public_request(one.bytes) == f"req_{one.hex}"
    assert id_of_type("WalletGrant", one) == f"grant_{one.hex}"
    assert id_of_type("project", one) == f"proj_{one.hex}"
    assert id_of_type("StageOwner", one) == f"stageowner_{one.hex}"


def test_an_id_is_read_in_every_form_of_its_kind() -> None:
    one = uuid4()
    for text in (f"key_{one.hex}", one.hex, one.hex.upper(), str(one)):
        assert uuid_of(text, "key") == uuid_of(text) == one
    for text in (f"req_{one.hex}", f"chatcmpl-{one.hex}", f"cmpl-{one.hex}", f"msg_{one.hex}"):
        assert uuid_of(text, "req") == one


@pytest.mark.parametrize(
    "text",
    ["", "key_", "x", "proj_{}", "chatcmpl-{}", "key{}", "key_{}0", "_{}", "Key_{}", "{{{}}}",
     "urn:uuid:{}", "key_{}\n"],
)  # fmt: skip
def test_other_texts_are_no_id_of_the_kind(text: str) -> None:
    with pytest.raises(ValueError, match="key_ and 32 hex digits"):
        uuid_of(text.format(uuid4().hex), "key")


def test_each_kind_has_a_prefix_of_its_own() -> None:
    assert prefix_of(ApiKeyId) == prefix_of(ApiKeyId | None) == "key"
    assert prefix_of(str) == prefix_of(str | None) == ""
    assert len(set(PREFIXES.values())) == len(PREFIXES)
