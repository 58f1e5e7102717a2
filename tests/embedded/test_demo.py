"""What a start prints and keeps: the key once, private files, a command that can be pasted."""

from pathlib import Path

import pytest

from controlplane.embedded.demo import EMBED_CREDENTIAL, Demo, DemoFiles, parse, welcome
from controlplane.embedded.processes import ServerError

URL = "http://127.0.0.1:8000"
FIRST = Demo(api_key="sk_sluice_demo", node_credential="node-secret", setup_path="/set-up/token")


def files(tmp_path: Path) -> DemoFiles:
    (tmp_path / "secrets").mkdir()
    return DemoFiles(tmp_path)


def test_the_first_start_prints_the_key_and_keeps_it_private(tmp_path: Path) -> None:
    kept = files(tmp_path)
    kept.keep(FIRST, URL)
    assert kept.env.read_text() == f"SLUICE_URL={URL}\nSLUICE_KEY=sk_sluice_demo\n"
    assert kept.env.stat().st_mode & 0o777 == 0o600
    assert kept.credential() == "node-secret"
    text = welcome([URL], FIRST, kept)
    assert "sk_sluice_demo" in text
    assert f"{URL}/set-up/token" in text


def test_a_second_start_keeps_the_key_moves_the_url_and_prints_no_secret(tmp_path: Path) -> None:
    kept = files(tmp_path)
    kept.keep(FIRST, URL)
    kept.keep(Demo(), "http://127.0.0.1:8001")
    assert "SLUICE_URL=http://127.0.0.1:8001" in kept.env.read_text()
    assert kept.key() == "sk_sluice_demo"
    assert "sk_sluice_demo" not in welcome([URL], Demo(), kept)


def test_every_gateway_is_printed_and_the_first_is_the_one_to_try(tmp_path: Path) -> None:
    second = "http://127.0.0.1:8001"
    text = welcome([URL, second], Demo(), files(tmp_path))
    assert "2 gateways" in text and f"{second}/v1" in text
    assert f"{second}/v1/chat" not in text
    assert "gateways" not in welcome([URL], Demo(), DemoFiles(tmp_path))


def test_a_lost_node_credential_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="node-credential is missing"):
        files(tmp_path).credential()


def test_only_the_last_line_of_the_command_counts() -> None:
    assert parse('noise\n{"api_key": "k", "more": 1}\n') == Demo(api_key="k")


def test_each_node_keeps_a_credential_of_its_own(tmp_path: Path) -> None:
    kept = files(tmp_path)
    kept.keep(Demo(node_credential="node-secret", embed_credential="embed-secret"), URL)
    assert (kept.credential(), kept.credential(EMBED_CREDENTIAL)) == ("node-secret", "embed-secret")
    for name in ("node-credential", EMBED_CREDENTIAL):
        assert (tmp_path / "secrets" / name).stat().st_mode & 0o777 == 0o600
