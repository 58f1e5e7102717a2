"""The setting that lists identity providers: what is wrong in it is named, and no secret told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.tenants.sign_in.providers import PROVIDERS_MAX, providers_read

ONE = {
    "id": "a", "name": "A", "issuer": "https://id.example/", "client_id": "c",
    "client_secret": "a-secret",
}  # fmt: skip
RULE = {"organization": "org_0123456789abcdef0123456789abcdef", "role": "viewer"}


def read(*changes: dict[str, Any]) -> Any:
    return providers_read(json.dumps([ONE | change for change in changes]))


def test_a_provider_needs_no_more_than_who_we_are_there() -> None:
    (found,) = read({})
    assert (found.issuer, found.client_secret) == ("https://id.example", "a-secret")
    assert found.scopes == ("openid", "email", "profile") and not found.by_groups
    assert "a-secret" not in repr(found)
    assert providers_read("[]") == ()


def test_its_secret_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("of-a-file\n")
    (found,) = read({"client_secret": "", "client_secret_file": str(file)})
    assert found.client_secret == "of-a-file"
    with pytest.raises(ValueError, match="not both"):
        read({"client_secret_file": str(file)})
    with pytest.raises(ValueError, match="client_secret.*No such file"):
        read({"client_secret": "", "client_secret_file": str(tmp_path / "none")})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"issuer": "id.example"}, "issuer"),
        ({"issuer": "https://user:secret@id.example"}, "issuer"),
        ({"client_secret": ""}, "a: client_secret or client_secret_file is required"),
        ({"id": "A b"}, r"\$\[0\].id"),
        ({"name": ""}, r"\$\[0\].name"),
        ({"scopes": ["email"]}, "scopes"),
        ({"email_claim": "upn"}, "email_claim: needs email_trusted"),
        ({"email_trusted": True}, "email_trusted: needs domains"),
        ({"domain_claim": "hd"}, "domain_claim: needs domains"),
        ({"domains": ["Example.org"]}, "domains"),
        ({"roles": [RULE]}, "roles: one without a group needs domains"),
        ({"roles": [RULE | {"role": "king"}]}, r"roles\[0\].role"),
        ({"roles": [RULE | {"organization": "acme"}]}, r"roles\[0\]"),
        ({"roles": [RULE | {"project": "p"}]}, "unknown field `project`"),
        ({"group": "x"}, "unknown field `group`"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        read(change)
    assert "a-secret" not in str(refused.value)


def test_two_providers_are_told_apart() -> None:
    with pytest.raises(ValueError, match="id: the same"):
        read({}, {"issuer": "https://other.example"})
    with pytest.raises(ValueError, match="issuer: the same"):
        read({}, {"id": "b", "issuer": "https://id.example"})
    assert len(read({}, {"id": "b", "issuer": "https://other.example"})) == 2
    many = [{"id": f"p{n}", "issuer": f"https://{n}.example"} for n in range(PROVIDERS_MAX + 1)]
    with pytest.raises(ValueError, match="length"):
        read(*many)


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '[{"id": "a-secret"}]'])
def test_a_process_says_which_setting_it_is(text: str, tmp_path: Path) -> None:
    file = tmp_path / "providers.json"
    file.write_text(text)
    told = {**os.environ, "SLUICE_OIDC_PROVIDERS_FILE": str(file)}
    ran = subprocess.run(
        [sys.executable, "-c", "import controlplane.settings.oidc"],
        env=told,
        capture_output=True,
        text=True,
    )
    assert ran.returncode != 0 and "ImproperlyConfigured: SLUICE_OIDC_PROVIDERS: " in ran.stderr
    assert "a-secret" not in ran.stderr
