"""Which server is behind a node: by what it answers, by its address, or as it was told."""

from __future__ import annotations

from typing import Any

import pytest

from inference.engines.remote.kinds import kind_at
from inference.engines.remote.server import RemoteOptions
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
