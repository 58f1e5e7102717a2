"""Some seconds of `make fuzz` from a fresh seed, and every case that it has ever failed on."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fuzz.case import FOLDER, Case, keep, load
from tests.support.servers import Servers

if TYPE_CHECKING:
    from tests.fuzz.ground import Ground

SECONDS = 8.0
SEED_BITS = 32


@pytest.fixture(scope="module")
def ground(servers: Servers) -> Iterator[Ground]:
    """One product for all; imported late, since it needs models."""
    with import_module("tests.fuzz.ground").running_ground(servers) as ground:
        yield ground


async def test_whatever_is_sent_the_product_goes_on(ground: Ground, tmp_path: Path) -> None:
    seed = secrets.randbits(SEED_BITS)
    found = await import_module("tests.fuzz.campaign").campaign(ground, seed, SECONDS, tmp_path)
    print(found)
    assert not found.problem, f"{found}\n{found.kept and told(Path(found.kept))}"
    assert min(found.requests, found.links, found.probes) > 0


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
async def test_what_failed_once_does_not_fail_again(ground: Ground, path: Path) -> None:
    campaign = import_module("tests.fuzz.campaign")
    for case in load(path):
        assert not await campaign.fails(ground, case), ground.problems


def told(path: Path) -> str:
    """The case that failed, for whoever reads the failure: copy it to tests/fuzz/cases."""
    return path.read_text()


def test_a_case_is_kept_as_it_was_sent(tmp_path: Path) -> None:
    cases = [Case.of("v1", [bytes(range(256))]), Case.of("fleet", [b"\x00\xff", b""])]
    kept = load(keep(cases, tmp_path))
    assert kept == cases
    assert [case.data for case in kept] == [[bytes(range(256))], [b"\x00\xff", b""]]
