"""Operations of the control plane's API by the operator's token, as a program asks for them."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.test import Client

from tests.support.orm import orm


@orm
def answered(method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
    """Status and answer of an operation below `/api/`."""
    answer = Client().generic(
        method,
        f"/api/{path}",
        json.dumps({} if body is None else body),
        content_type="application/json",
        headers={"authorization": f"Bearer {settings.OPERATOR_TOKEN}"},
    )
    found: dict[str, Any] = json.loads(answer.content)
    return answer.status_code, found


async def operate(method: str, path: str, body: object = None) -> dict[str, Any]:
    """The answer of one that succeeds."""
    status, found = await answered(method, path, body)
    assert status < 300, found
    return found
