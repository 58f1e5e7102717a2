"""Token ids of prompts by the server itself: what each kind is asked, and whom nobody believes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inference.contract.tokens import pack_ids, unpack_ids
from inference.engines.remote.tokens import MISCOUNTS_MAX
from tests.inference.engines.remote.rig import MESSAGES, Rig, make_job, started, upstream
from tests.support.shipped import SHIPPED
from tests.support.upstream import HandUpstream, text_chunk, usage_chunk

__all__ = ["upstream"]

CHAT = json.loads(MESSAGES)["messages"]
IDS = [5, 70_000, 1]
ABLE = "tokenizes"


def telling(upstream: HandUpstream, ids: Any = IDS) -> None:
    """The server answers as vLLM, SGLang and llama.cpp do."""
    upstream.answers["/tokenize"] = (200, {"tokens": ids})
    upstream.answers["/apply-template"] = (200, {"prompt": "<hello>"})


async def asked(rig: Rig, **body: Any) -> list[int]:
    return unpack_ids(await rig.engine.token_ids("ours", json.dumps(body).encode()))


async def test_vllm_is_asked_for_chats_with_tools_and_for_prompts(upstream: HandUpstream) -> None:
    telling(upstream)
    async with started(upstream, server="vllm") as rig:
        assert ABLE in rig.engine.facts.capabilities
        tools = [{"type": "function", "function": {"name": "look"}}]
        variables = {"enable_thinking": True, "deep": 1}
        more = {"tools": tools, "stop": ["x"], "response_format": {"type": "json_object"}}
        effort = {"reasoning_effort": "none", "chat_template_kwargs": variables}
        assert await asked(rig, messages=CHAT, **more, **effort) == IDS
        # The client's own variables stand.
        told = {"reasoning_effort": "none", **variables}
        sent = {"model": "big", "messages": CHAT, "tools": tools, "chat_template_kwargs": told}
        assert upstream.asked[-1] == ("/tokenize", sent)
        assert await asked(rig, prompt="once") == IDS
        assert upstream.asked[-1] == ("/tokenize", {"model": "big", "prompt": "once"})
        await rig.engine.token_ids("poet", MESSAGES)
        assert upstream.asked[-1][1] == {"model": "poet", "messages": CHAT}


async def test_llama_cpp_renders_a_chat_before_it_is_asked(upstream: HandUpstream) -> None:
    telling(upstream)
    async with started(upstream, server="llama.cpp") as rig:
        assert await asked(rig, messages=CHAT, tools=[]) == IDS
        content = {"content": "<hello>", "add_special": True, "parse_special": True}
        assert upstream.asked[-2:] == [
            ("/apply-template", {"messages": CHAT, "tools": []}),
            ("/tokenize", content),
        ]
        assert await asked(rig, prompt="once") == IDS
        assert upstream.asked[-1] == ("/tokenize", {**content, "content": "once"})


async def test_sglang_tells_ids_of_prompts_alone(upstream: HandUpstream) -> None:
    telling(upstream)
    async with started(upstream, server="sglang") as rig:
        assert await asked(rig, prompt="once") == IDS
        before = len(upstream.asked)
        assert await asked(rig, messages=CHAT) == []
        assert len(upstream.asked) == before


@pytest.mark.parametrize("ids", [None, "5", ["5"], [-1], [2**32], [1.5], [], 5])
async def test_what_is_no_list_of_ids_is_none(upstream: HandUpstream, ids: Any) -> None:
    telling(upstream)
    async with started(upstream, server="vllm") as rig:
        telling(upstream, ids)
        assert await asked(rig, prompt="once") == []
        upstream.answers["/tokenize"] = (400, {"error": {"message": "no"}})
        assert await asked(rig, prompt="once") == []
        assert await rig.engine.token_ids("ours", b"{") == b""
    async with started(upstream, server="vllm") as rig:
        assert ABLE not in rig.engine.facts.capabilities
        assert await asked(rig, prompt="once") == []


@pytest.mark.parametrize("kind", ["other", "ollama"])
async def test_who_tells_no_ids_is_not_asked(upstream: HandUpstream, kind: str) -> None:
    telling(upstream)
    async with started(upstream, server=kind) as rig:
        assert ABLE not in rig.engine.facts.capabilities
        assert await asked(rig, prompt="once") == []
    assert not upstream.asked


async def test_with_a_folder_the_server_is_not_asked(upstream: HandUpstream) -> None:
    telling(upstream)
    async with started(upstream, server="vllm", folder=SHIPPED) as rig:
        assert ABLE not in rig.engine.facts.capabilities
    assert not upstream.asked


async def computed(rig: Rig, prompt_tokens: int) -> None:
    """A prompt is asked of, and then computed."""
    await rig.engine.token_ids("ours", MESSAGES)
    job = make_job()
    exchange = await rig.submit(job)
    await exchange.answer(text_chunk("ok", finish="stop"), usage_chunk(prompt_tokens, 1))
    await rig.sink.until(lambda: bool(rig.sink.outputs[job.request][-1:]))
    await rig.sink.until(lambda: rig.sink.outputs[job.request][-1].finish is not None)


async def test_a_server_that_counts_otherwise_than_it_tells_is_asked_no_more(
    upstream: HandUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    """One miscount may be of a field that only chats have; several in a row are not."""
    telling(upstream)
    async with started(upstream, server="vllm") as rig:
        for counts in ([4, 4, len(IDS)], [4] * MISCOUNTS_MAX):
            assert ABLE in rig.engine.facts.capabilities
            for count in counts:
                await computed(rig, count)
        assert ABLE not in rig.engine.facts.capabilities
        assert "told 3 tokens of a prompt that counts 4" in caplog.text
        before = len(upstream.asked)
        assert await asked(rig, prompt="once") == []
        assert len(upstream.asked) == before


def test_packed_ids_are_what_they_were() -> None:
    assert unpack_ids(pack_ids(IDS)) == IDS
