"""`sluice …`: which command each word stands for, and what it says to words that stand for none."""

from __future__ import annotations

import pytest
from django.core.management import get_commands

from controlplane import __main__ as console
from inference.contract.version import VERSION


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["run", "--port", "9000"], ["sluice", "run", "--port", "9000"]),
        (["keys", "check", "src"], ["sluice", "key-check", "src"]),
        (["keys", "list", "--json"], ["keys", "list", "--json"]),
        (["models", "list"], ["listing", "models"]),
        (["wallet", "list"], ["listing", "wallets"]),
        (["orgs", "create", "Acme"], ["organization_create", "Acme"]),
        (["wallet", "show", "Acme"], ["wallet", "show", "Acme"]),
        (["verify_ledger", "--strict"], ["verify_ledger", "--strict"]),
    ],
)
def test_a_word_stands_for_a_command_of_djangos(words: list[str], command: list[str]) -> None:
    assert console.resolved(words) == command


def test_every_command_of_the_list_is_there() -> None:
    assert {command.words[0] for command in console.COMMANDS.values()} <= set(get_commands())


def test_without_a_command_it_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    for words, status in (([], 2), (["--help"], 0), (["keys", "--help"], 0)):
        assert console.main(words) == status
        assert capsys.readouterr().out == console.usage()
    for name in [*console.COMMANDS, *console.PROGRAMS]:
        assert f"\n  {name} " in console.usage()


@pytest.mark.parametrize("words", [["keys"], ["models", "destroy"]])
def test_a_group_wants_its_second_word(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert console.main(words) == 2
    assert capsys.readouterr().err == console.usage()


@pytest.mark.parametrize("name", list(console.PROGRAMS))
def test_programs_without_django_are_reached(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        console.main([name, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


def test_the_version_needs_no_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.main(["--version"]) == 0
    assert capsys.readouterr().out == f"sluice {VERSION}\n"
