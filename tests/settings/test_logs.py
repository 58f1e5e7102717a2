"""Logs: a one-time link's token reaches no line, however it got there."""

import logging
from io import StringIO
from typing import Any

import pytest
import structlog

from controlplane.settings.logs import LOGGING

FORMATTERS: Any = LOGGING["formatters"]
TOKEN = "c2Vj-cmV0_dG9rZW4"


def written(*, message: str, values: tuple[Any, ...] = (), failed: bool = False) -> str:
    formatter = dict(FORMATTERS["lines"])
    out = StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter.pop("()")(**formatter))
    log = logging.Logger("test")
    log.addHandler(handler)
    log.warning(message, *values, exc_info=RuntimeError(f"at /setup/{TOKEN}") if failed else None)
    return out.getvalue()


@pytest.mark.parametrize(
    "line",
    [
        written(message="Not Found: %s", values=(f"/setup/{TOKEN}",)),
        written(message="{path_info: '/setup/%s', more: 1}", values=(TOKEN,)),
        written(message="it broke", failed=True),
    ],
)
def test_tokens_are_masked(line: str) -> None:
    assert "/setup/***" in line
    assert TOKEN not in line


def test_values_of_our_own_loggers_are_masked_too() -> None:
    formatter = dict(FORMATTERS["lines"])
    made = formatter.pop("()")(**formatter)
    record = logging.LogRecord("test", logging.INFO, __file__, 1, "", (), None)
    record.msg = {"event": "got", "request": {"path_info": f"/setup/{TOKEN}"}}
    record._logger, record._name = structlog.get_logger(), "info"
    line = made.format(record)
    assert "/setup/***" in line and TOKEN not in line


def test_other_paths_stay() -> None:
    assert "/requests/abc" in written(message="Not Found: /requests/abc")
