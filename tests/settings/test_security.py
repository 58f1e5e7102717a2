"""The pages' headers: the exact content policy, and no cookie that a script could read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

POLICY = {
    "default-src 'none'",
    "script-src 'self'",
    "connect-src 'self'",
    "img-src 'self' data: blob:",
    "font-src 'self'",
    "style-src 'self' 'unsafe-inline'",
    "style-src-elem 'self' 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='",
    "style-src-attr 'unsafe-inline'",
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
}


def test_every_page_carries_the_content_policy(client: Client) -> None:
    response = client.get(settings.LOGIN_URL)
    assert response.status_code == 200
    assert set(response["Content-Security-Policy"].split("; ")) == POLICY
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["X-Frame-Options"] == "DENY"
    assert settings.SESSION_COOKIE_HTTPONLY


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example"])
def test_a_foreign_host_name_is_refused(client: Client, host: str) -> None:
    assert client.get(settings.LOGIN_URL, headers={"host": host}).status_code == 400


def test_django_finds_nothing_to_say_about_production(tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    env = {
        "PATH": os.environ["PATH"],
        "SLUICE_DATA": str(tmp_path / "data"),
        "SLUICE_HTTPS": "1",
        "SLUICE_ALLOWED_HOSTS": "sluice.example.org",
    }
    done = subprocess.run(
        command, cwd=settings.BASE_DIR, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout
