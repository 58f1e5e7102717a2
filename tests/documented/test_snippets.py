"""Every block of the documentation is run or read by what it is for; one that nothing checks fails.

Commands and programs run on one installation, requests are sent to it, documents are validated by
it. `told.py` has what a block takes for granted, and the few that nothing here can run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml

from controlplane.__main__ import PROGRAMS, resolved
from inference.__main__ import parser as node_parser
from inference.agent.__main__ import parser as agent_parser
from tests.documented import told
from tests.documented.blocks import ROOT, Block, blocks, named_commands
from tests.documented.installation import Installation, checkout, documented
from tests.documented.programs import make, parser_of
from tests.release.chart import objects, rendered
from tests.release.test_chart import check_custom, faults, is_custom
from tests.support.described import check_described

pytestmark = pytest.mark.timeout(300)

KUBERNETES = "1.33.0"
EXCEPTIONS_MAX = 4
Check = Callable[[str, Installation, Path], None]


@pytest.fixture(scope="module")
def here() -> Iterator[Installation]:
    with documented() as made:
        yield made


def commands(text: str, here: Installation, folder: Path) -> None:
    here.sh(text, folder)


def program(text: str, here: Installation, folder: Path) -> None:
    with openai.OpenAI(base_url=f"{here.url}/v1", api_key=here.key) as client:
        names: dict[str, Any] = {"client": client}
        try:
            exec(compile(text, "block.py", "exec"), names)
        finally:
            names["client"].close()


def database(text: str, here: Installation, folder: Path) -> None:
    (folder / "block.sql").write_text(text)
    here.sh("psql < block.sql", folder)


def request(text: str, here: Installation, folder: Path) -> None:
    """A body, or several of one kind, sent where the table says."""
    sent = told.of(told.SENT, text)
    for name in sent.before:
        here.api("POST", f"/api/catalog/templates/{here.organization()}", {"name": name})
    here.api(sent.method, sent.path(here), sent.wrapped(json.loads(text)))


def answer(text: str, here: Installation, folder: Path) -> None:
    """As the installation answers the same request: the same names at every depth."""
    path, body = told.of(told.ANSWERED, text)
    assert names_of(json.loads(text)) == names_of(here.answer(path, body))


def names_of(told: Any) -> Any:
    if isinstance(told, dict):
        return {name: names_of(value) for name, value in told.items()}
    if isinstance(told, list) and told and isinstance(told[0], dict):
        return "rows"
    return None


def configuration(text: str, here: Installation, folder: Path) -> None:
    document = text
    if not text.startswith("sluice:"):
        document = yaml.safe_dump({"sluice": 1, "routing": {"rules": yaml.safe_load(text)}})
    (folder / "block.yaml").write_text(document)
    here.sh("sluice config validate block.yaml", folder)


def kubernetes(text: str, here: Installation, folder: Path) -> None:
    """Resources, or values of the chart with which it makes some."""
    (folder / "block.yaml").write_text(text)
    made = (
        objects(text) if "apiVersion:" in text else objects(rendered(values=folder / "block.yaml"))
    )
    custom = [one for one in made if is_custom(one)]
    checked = check_custom(custom)
    assert checked.returncode == 0, checked.stderr
    assert [faults(one, KUBERNETES) for one in made if not is_custom(one)] == [
        [] for one in made if not is_custom(one)
    ]


def document(text: str, here: Installation, folder: Path) -> None:
    is_of_clusters = "apiVersion:" in text or text.startswith("# values.yaml")
    (kubernetes if is_of_clusters else configuration)(text, here, folder)


def body(text: str, here: Installation, folder: Path) -> None:
    for table, check in ((told.SENT, request), (told.ANSWERED, answer), (told.SHAPES, shape)):
        if any(part in text for part in table):
            return check(text, here, folder)
    raise AssertionError("Nothing says what this is.")


def shape(text: str, here: Installation, folder: Path) -> None:
    """Of a line of a batch, its body."""
    shown = json.loads(text)
    check_described(shown.get("body", shown), told.of(told.SHAPES, text))


def settings_file(text: str, here: Installation, folder: Path) -> None:
    """Of PgBouncer, in sections; or of PostgreSQL, which knows each name."""
    if text.startswith("["):
        read = ConfigParser()
        read.read_string(text)
        assert "databases" in read and "pgbouncer" in read
        return
    shown = [f"SHOW {line.split(' = ')[0]};" for line in text.splitlines()]
    database("\n".join(shown), here, folder)


def words(text: str, here: Installation, folder: Path) -> None:
    """A pattern, or what a command prints."""
    if text.startswith("(?:"):
        assert re.fullmatch(text.strip(), here.key)
        return
    command = [
        sys.executable,
        "-m",
        "inference",
        "--check",
        "--model",
        "inference/assets/sluice-5m",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    printed = iter(labels(done.stdout))
    assert all(label in printed for label in labels(text)), done.stdout


def labels(text: str) -> list[str]:
    return [line.partition(":")[0] for line in text.splitlines()]


CHECKS: dict[str, Check] = {
    "sh": commands, "python": program, "sql": database, "json": body, "yaml": document,
    "text": words, "ini": settings_file,
}  # fmt: skip
CHECKED = [
    block
    for block in blocks()
    if block.file not in told.ELSEWHERE
    and block.key not in told.ELSEWHERE
    and block.key not in told.EXCEPTIONS
]


@pytest.mark.parametrize("block", CHECKED, ids=lambda block: f"{block.file}:{block.line}")
def test_it_is_as_it_says(
    block: Block, here: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert block.language in CHECKS, "Say what it is behind the fence."
    monkeypatch.chdir(checkout(tmp_path))
    CHECKS[block.language](told.filled(block, here), here, tmp_path)


def test_exceptions_are_few_and_of_blocks_that_are_there() -> None:
    keys = {block.key for block in blocks()} | {block.file for block in blocks()}
    assert {*told.EXCEPTIONS, *told.ELSEWHERE} <= keys
    assert len(told.EXCEPTIONS) <= EXCEPTIONS_MAX
    for name, test in told.ELSEWHERE.items():
        file = name if isinstance(name, str) else name[0]
        assert Path(file).name in (ROOT / test).read_text(), test
    for file, part in told.OF_BLOCKS:
        assert any(block.file == file and part in block.text for block in blocks()), (file, part)
    for table in (told.SENT, told.ANSWERED, told.SHAPES):
        for part in table:
            assert sum(part in block.text for block in blocks() if block.language == "json") == 1


@pytest.mark.parametrize(("file", "command"), sorted(set(named_commands())))
def test_commands_in_running_text_are_ours(file: str, command: str) -> None:
    """Words in capitals stand for something; options are those of the command's own parser."""
    program, *words = command.split()
    if program == "make":
        return make(words)
    if program == "python":
        inference = {"inference": node_parser, "inference.agent": agent_parser}
        if words[0] == "-m":
            return options_known(inference[words[1]](), words[2:])
        words = words[1:]
    elif words[0].isupper() or words[0].startswith("-") or words[0] in PROGRAMS:
        return None
    else:
        words = resolved(words) or pytest.fail("half a command")
    parser, rest = parser_of(words)
    return options_known(parser, rest)


def options_known(parser: Any, words: list[str]) -> None:
    """Each option is a parser's, or of one of its commands', which has to be there."""
    for word in words:
        commands = next(
            (
                each.choices
                for each in parser._actions
                if each.choices and isinstance(each.choices, dict)
            ),
            {},
        )
        if word.startswith("--"):
            assert word.partition("=")[0] in parser._option_string_actions, word
        elif commands and not word.isupper():
            assert word in commands, word
            parser = commands[word]
