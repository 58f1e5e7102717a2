"""From where a change comes: pages, API, commands and jobs say so; proxies only where trusted."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from django.conf import settings
from django.test import Client, RequestFactory, override_settings

from controlplane.core.audit.entries import OPERATOR, audit_record
from controlplane.core.audit.origin import JOB, Origin, client_address, coming_from, origin_now
from controlplane.core.models import AuditEntry
from controlplane.core.permissions import organization_scope
from controlplane.tenants.audit.selectors import INSTALLATION, audit_search
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in

PROXY = "10.0.0.9"
AGENT = "Mozilla/5.0 (test)"


@pytest.fixture
def cast(database: str) -> Cast:
    """People with a session each."""
    return make_cast()


def newest(cast: Cast, *, installation: bool = False) -> AuditEntry:
    """The last row."""
    organization = None if installation else cast.acme.id
    return audit_search(actor=OPERATOR, organization_id=organization).rows[0]


def add_pool(client: Client, **more: Any) -> None:
    """A change by API."""
    answer = client.put("/api/fleet/pools/night", {}, content_type="application/json", **more)
    assert answer.status_code == 201, answer.content


def test_a_page_tells_address_browser_and_session(cast: Cast) -> None:
    client = signed_in(cast.stella)
    form = {
        "name": "night",
        "task": "generate",
        "role": "both",
        "nodes_min": "0",
        "nodes_max": "1",
    }
    client.get("/account")
    client.post("/fleet/pools", form, headers={"user-agent": AGENT}, REMOTE_ADDR="192.0.2.7")
    row = newest(cast, installation=True)
    assert (row.action, row.channel, row.address) == ("pool.set", "page", "192.0.2.7")
    assert row.agent == AGENT
    kind, reference = row.credential.split("_")
    assert kind == "session" and str(client.session.session_key) not in row.credential
    # The one that its owner sees in the list of sessions.
    assert rows("SELECT count(*) FROM user_sessions WHERE id = %s::uuid", reference) == [(1,)]


def test_the_api_tells_which_credential(cast: Cast) -> None:
    add_pool(Client(headers={"authorization": f"Bearer {settings.OPERATOR_TOKEN}"}))
    row = newest(cast, installation=True)
    assert (row.channel, row.credential) == ("api", "operator token")
    assert settings.OPERATOR_TOKEN not in str(rows("SELECT e::text FROM audit_entries e"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "found"),
    [
        ("192.0.2.7", "", "192.0.2.7"),
        # Anybody can send a header.
        ("192.0.2.7", "203.0.113.1", "192.0.2.7"),
        (PROXY, "203.0.113.1", "203.0.113.1"),
        (PROXY, "1.1.1.1, 203.0.113.1", "203.0.113.1"),
        (PROXY, f"1.1.1.1, 203.0.113.1, {PROXY}", "203.0.113.1"),
        (PROXY, "<script>", ""),
        (PROXY, "", PROXY),
        ("::ffff:192.0.2.7", "", "192.0.2.7"),
    ],
)
def test_the_address_is_the_last_hop_that_is_no_proxy_of_ours(
    peer: str, forwarded: str, found: str
) -> None:
    headers = {"x-forwarded-for": forwarded} if forwarded else {}
    request = RequestFactory().get("/", headers=headers, REMOTE_ADDR=peer)
    with override_settings(TRUSTED_PROXIES=(PROXY,)):
        assert client_address(request) == found


def test_a_command_tells_itself_and_who_ran_it(cast: Cast) -> None:
    subprocess.run(
        [sys.executable, "manage.py", "pool_set", "night"], cwd=settings.BASE_DIR, check=True
    )
    row = newest(cast, installation=True)
    assert (row.channel, row.agent) == ("command", "manage.py pool_set")
    assert "@" in row.credential


def test_nothing_said_is_a_job_and_what_is_said_ends(cast: Cast) -> None:
    assert origin_now() == JOB
    with coming_from(lambda: Origin("page", agent="x")), coming_from(lambda: Origin("api")):
        assert origin_now() == Origin("api")
    assert origin_now() == JOB


def test_before_and_after_keep_what_differs_and_no_credential(cast: Cast) -> None:
    secret = "sk_sluice_" + "A" * 12 + "_" + "B" * 43 + "_" + "C" * 6
    told = "sk_sluice_" + "A" * 12 + "_…"
    with (
        organization_scope([cast.acme.id]),
        coming_from(lambda: Origin("page", agent=f"curl {secret}")),
    ):
        audit_record(
            OPERATOR,
            "test.change",
            subject=cast.acme,
            organization_id=cast.acme.id,
            detail={"text": f"pasted {secret} here", "list": [secret]},
            changed=(
                {"same": 1, "name": "old", "gone": True},
                {"same": 1, "name": secret, "new": None},
            ),
        )
    row = newest(cast)
    assert row.before == {"name": "old", "gone": True}
    assert row.after == {"name": told}
    assert row.detail == {"text": f"pasted {told} here", "list": [told]}
    assert row.agent == f"curl {told}"


def test_the_installations_rows_are_in_no_organizations_scope(cast: Cast) -> None:
    ids = {row.id for row in audit_search(actor=OPERATOR, organization_id=None).rows}
    assert ids
    with organization_scope([cast.acme.id, cast.other.id]):
        assert not AuditEntry.objects.filter(id__in=ids).exists()
    with organization_scope([INSTALLATION]):
        assert AuditEntry.objects.filter(id__in=ids).count() == len(ids)
