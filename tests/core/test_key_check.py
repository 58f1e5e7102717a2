"""`manage.py sluice key-check` finds our credentials, and tells real ones from made-up ones."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from controlplane.core.keycheck import LINE_CHARS_MAX, PREFIXES, find_credentials, scan
from controlplane.kernel.keys.format import new_credential


def run(*paths: Path) -> str:
    out = StringIO()
    call_command("sluice", "key-check", *map(str, paths), stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("around", ["{}", "KEY={}\n", '"{}",', "a {} b", "Bearer {}."])
def test_each_kind_is_found_wherever_it_stands(prefix: str, around: str) -> None:
    made = new_credential(prefix)
    (found,) = find_credentials("first line\n" + around.format(made.text))
    assert (found.credential.text, found.credential.prefix) == (made.text, prefix)
    assert found.genuine and found.line == 2


def test_what_only_looks_like_one_is_told_apart() -> None:
    made = new_credential().text
    wrong = made[:-1] + ("0" if made[-1] != "0" else "1")
    (found,) = find_credentials(wrong)
    assert not found.genuine
    assert list(find_credentials(made + "0")) == []
    assert list(find_credentials("x" + made)) == []
    assert list(find_credentials(made[:-1])) == []


def test_files_and_folders_are_searched_and_secrets_never_printed(tmp_path: Path) -> None:
    made = new_credential()
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "log.txt").write_text(f"one\ntwo {made.text}\n")
    (tmp_path / "picture.bin").write_bytes(b"\xff\xfe\x00" * 100)
    out = StringIO()
    with pytest.raises(CommandError, match="1 found"):
        call_command("sluice", "key-check", str(tmp_path), stdout=out)
    assert f"log.txt:2: sk_sluice_{made.key_id}_" in out.getvalue()
    assert made.text not in out.getvalue()


def test_nothing_found_is_a_success(tmp_path: Path) -> None:
    (tmp_path / "clean.py").write_text("KEY = os.environ['KEY']\n")
    assert "No credential was found." in run(tmp_path)


@pytest.mark.parametrize("before", [LINE_CHARS_MAX - 30, LINE_CHARS_MAX + 5])
def test_one_in_a_very_long_line_is_found_where_the_parts_meet(tmp_path: Path, before: int) -> None:
    made = new_credential().text
    path = tmp_path / "long.json"
    path.write_text(" " * before + made + " " * 300)
    assert {found.credential.text for found in scan(path)} == {made}
