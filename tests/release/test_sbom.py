"""The bill of materials: every pin of every lock with its hashes; notices of what is installed."""

from __future__ import annotations

import re
from pathlib import Path

from inference.contract.version import VERSION
from tests.release import sbom

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
# Counted otherwise than the script does: a requirement begins a line, its hashes follow.
PIN_LINE = re.compile(r"^([A-Za-z0-9._-]+)[^=\n]*==([^\s;\\]+)", re.MULTILINE)


def test_every_pin_of_every_lock_is_in_it_with_its_hashes() -> None:
    listed = {(each["name"], each["version"]): each for each in sbom.components()}
    for lock in LOCKS:
        text = lock.read_text()
        pinned = PIN_LINE.findall(text)
        assert pinned
        for name, version in pinned:
            found = listed[re.sub(r"[-_.]+", "-", name).lower(), version]
            assert {"name": "sluice:lock", "value": lock.stem} in found["properties"]
        hashes = {each["content"] for found in listed.values() for each in found["hashes"]}
        assert set(re.findall(r"sha256:(\w{64})", text)) <= hashes
    assert {lock.stem for lock in LOCKS} >= {*sbom.REQUIRED, *sbom.OPTIONAL}


def test_it_is_cyclonedx_and_the_same_each_time() -> None:
    made = sbom.bill()
    assert made == sbom.bill()
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert made["metadata"]["component"]["version"] == VERSION
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made["serialNumber"])
    references = [each["bom-ref"] for each in made["components"]]
    assert len(references) == len(set(references))
    assert {each["scope"] for each in made["components"]} == {"required", "optional", "excluded"}


def test_the_page_of_notices_is_of_these_locks() -> None:
    page = (ROOT / "docs" / "third-party.md").read_text()
    wanted = {
        (each["name"], each["version"]) for each in sbom.components() if each["scope"] == "required"
    }
    assert (
        set(re.findall(r"^\| ([a-z0-9-]+) \| (\d\S*) \| [^|]+ \|$", page, re.MULTILINE)) == wanted
    )
    for name, version, kind, place in sbom.VENDORED:
        assert f"| {name} | {version} | {kind} | `{place}` |" in page
        assert (ROOT / place).is_file()
