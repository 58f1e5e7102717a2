"""A node's logs as JSON: one object a line, whatever stands in the message."""

from __future__ import annotations

import json
import logging
import sys

from inference.logs import JsonLines


def test_a_line_is_one_object() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        record = logging.LogRecord(
            "inference.node", logging.WARNING, __file__, 1, "lost %r", ("a\nb",), sys.exc_info()
        )
    line = JsonLines().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert found["event"] == "lost 'a\\nb'" and found["level"] == "warning"
    assert found["logger"] == "inference.node" and found["timestamp"].endswith("+00:00")
    assert "ValueError: first" in found["exception"]
