"""Ids in addresses."""

import re
import uuid

from controlplane.core.converters import HexId


def test_ids_in_addresses_are_as_clients_see_them() -> None:
    one = uuid.uuid4()
    assert HexId().to_python(str(one)) == HexId().to_python(one.hex) == one
    assert HexId().to_url(one) == one.hex
    # As answers name a request.
    for prefix in ("chatcmpl-", "cmpl-"):
        assert re.fullmatch(HexId.regex, f"{prefix}{one.hex}")
        assert HexId().to_python(f"{prefix}{one.hex}") == one
