"""A request's page beside its hour: ranks, causes, its node at that time, and who shared it."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest
from django.test import override_settings

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.fleet.services import node_credential_create
from controlplane.kernel.clock import wall_us
from controlplane.kernel.ids import public_id
from controlplane.kernel.spans import ABSENT, INDEX, SPANS, pack_spans
from controlplane.tenants.people.services import membership_set
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in
from tests.support.records import make_record
from tests.support.traffic import store

USUAL_GAP_US, SLOW_GAP_US = 17_000, 160_000
TOKENS = 18


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def _times(gap_us: int) -> dict[str, Any]:
    decode_us = gap_us * (TOKENS - 1)
    starts, lengths = [ABSENT] * len(SPANS), [0] * len(SPANS)
    for name, start, us in (
        ("s5_infer", 1_000, decode_us + 30_000),
        ("s5_infer.prefill", 1_000, 30_000),
        ("s5_infer.decode", 31_000, decode_us),
    ):
        starts[INDEX[name]], lengths[INDEX[name]] = start, us
    return {
        "spans": pack_spans(starts, lengths),
        "total_us": decode_us + 32_000,
        "inter_token_us": [gap_us] * (TOKENS - 1),
        "output_tokens": TOKENS,
    }


def _write(cast: Cast, usual: int = 30) -> uuid.UUID:
    """A slow request of Acme, one of Other beside it on its node, and usual ones long before."""
    acme = {"organization": cast.acme.id.hex, "project": cast.project.id.hex}
    now_us = wall_us()
    slow = make_record(**acme, **_times(SLOW_GAP_US), started_us=now_us)
    node_id = node_credential_create(actor=OPERATOR, name="node-1", pool="default").credential.node
    facts = {"running": 6, "waiting": 1, "kv_blocks": 100, "kv_free_blocks": 38, "step_us": 160_000}
    links = [{"node": node_id.id.hex, "facts": {**facts, "cpu_permille": 980}}]
    rows("SELECT fleet_links('gw', %s::jsonb, '{}'::jsonb)", json.dumps(links))
    store(
        [
            slow,
            make_record(organization=cast.other.id.hex, started_us=now_us, node="node-1"),
            make_record(**acme, started_us=now_us, node="node-2"),
            *(
                make_record(**acme, **_times(USUAL_GAP_US), node="node-3", started_us=now_us)
                for _ in range(usual)
            ),
        ]
    )
    return uuid.UUID(bytes=slow.request)


def _page(cast: Cast, user: Any, request: uuid.UUID) -> str:
    answer = signed_in(user).get(f"/requests/{public_id('req', request)}")
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_a_slow_request_names_pace_batch_and_who_shared_its_node(cast: Cast) -> None:
    request = _write(cast)
    text = _page(cast, cast.alice, request)
    assert re.search(r"Decode took 160 ms a token, 9\.\d × the hour&#x27;s median of 1[67]", text)
    # Another tenant is counted, and neither linked nor named.
    assert "1 other request, some of 1 other organization" in text
    assert "1 other request was on its node" in text
    assert "node-1" not in text and "98" not in text.partition("Also on the node")[0][-900:]
    assert 'data-label="Rank"' in text and "longest" in text


def test_staff_are_told_what_the_node_was_like(cast: Cast) -> None:
    request = _write(cast)
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.stella, role=Role.VIEWER)
    text = _page(cast, cast.stella, request)
    assert "node-1 was at 98 % CPU, with 6 sequences in its batch." in text
    assert "batch of 6, 1 waiting, longest step 160 ms" in text and "62.0 % of KV blocks" in text


def test_without_shared_figures_it_is_for_staff_alone(cast: Cast) -> None:
    slow = public_id("req", _write(cast))
    with override_settings(SHARED_FIGURES=False):
        text = signed_in(cast.alice).get(f"/requests/{slow}").content.decode()
    assert "causes-title" not in text and "Also on the node" not in text


def test_an_hour_of_few_requests_says_so(cast: Cast) -> None:
    text = _page(cast, cast.alice, _write(cast, usual=3))
    assert "Too few requests in that hour to compare with" in text


def test_a_request_that_no_model_served_has_no_causes(cast: Cast) -> None:
    acme = {"organization": cast.acme.id.hex, "project": cast.project.id.hex}
    refused = make_record(**acme, status=429, output_tokens=0, node="")
    store([refused])
    assert "Why it took" not in _page(cast, cast.alice, uuid.UUID(bytes=refused.request))
