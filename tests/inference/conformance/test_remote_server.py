"""What only a remote engine has to keep, with real vLLM's own server behind it: text and counts.

`test_contract.py` holds it to what all engines have in common.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest
from tokenizers import Tokenizer

from inference.contract.capabilities import Capability
from inference.contract.frames import Job, Output, Sampling
from inference.engines.remote.engine import RemoteEngine
from inference.engines.remote.server import RemoteOptions
from inference.errors import JobRefused
from tests.inference.conformance.subjects import CREDITS, SERVER_KEY
from tests.inference.engines.sink import Sink
from tests.support.shipped import SHIPPED, long_prompt, no_end
from tests.support.vllm_server import WINDOW, VllmServer

BLOCK_SIZE = 32
FREE_POLLS_MAX = 200
POLL_S = 0.1
TOKENIZER = Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))
NO_END = {int(token): bias for token, bias in no_end().items()}


class Remote:
    """A started engine, and jobs of a tenant of its own."""

    def __init__(self, engine: RemoteEngine, server: VllmServer) -> None:
        self.engine = engine
        self.server = server
        self.sink = Sink()
        self.salt = secrets.token_bytes(16)

    def job(self, prompt: int | str = 40, **wanted: Any) -> Job:
        """A greedy text completion of so many tokens, or of a text."""
        given = long_prompt(prompt) if isinstance(prompt, int) else prompt
        fields = {name: wanted.pop(name) for name in ("salt", "deadline_ms") if name in wanted}
        body = {"prompt": given, **wanted.pop("body", {})}
        return Job(
            request=secrets.token_bytes(16),
            model=SHIPPED.name,
            tokens=[],
            hashes=b"",
            sampling=Sampling(**{"max_tokens": 8, "temperature": 0.0, **wanted}),
            stop_tokens=[],
            request_json=msgspec.json.encode(body),
            **{"salt": self.salt, "deadline_ms": 60_000, **fields},
        )

    async def run(self, job: Job) -> list[Output]:
        """All outputs of a job."""
        self.engine.submit(job)
        return await self.sink.finished(job.request, job.sampling.n)

    async def begun(self, job: Job) -> None:
        """Until some of its text is here."""
        await self.sink.until(lambda: bool(self.sink.outputs[job.request]))

    async def free(self) -> None:
        """Until the server itself says that it runs nothing and holds no block."""
        url = self.server.url.removesuffix("/v1") + "/metrics"
        async with httpx2.AsyncClient() as client:
            for _ in range(FREE_POLLS_MAX):
                if not any(gauges_of((await client.get(url)).text)):
                    return
                await asyncio.sleep(POLL_S)
        raise AssertionError("the server still runs what was cancelled")


def gauges_of(metrics: str) -> list[float]:
    """Running and waiting requests, and the share of the cache in use."""
    names = ("num_requests_running{", "num_requests_waiting{", "kv_cache_usage_perc{")
    lines = [line for line in metrics.splitlines() if any(f"vllm:{n}" in line for n in names)]
    assert len(lines) == len(names)
    return [float(line.rsplit(" ", 1)[1]) for line in lines]


def text_of(outputs: list[Output], choice: int = 0) -> str:
    return "".join(output.text or "" for output in outputs if output.choice == choice)


def make_engine(url: str) -> RemoteEngine:
    options = RemoteOptions(url=url, name=SHIPPED.name, key=SERVER_KEY, credits=CREDITS)
    return RemoteEngine(options, SHIPPED)


@pytest.fixture
async def remote(vllm_http: VllmServer) -> AsyncIterator[Remote]:
    made = Remote(make_engine(vllm_http.url), vllm_http)
    try:
        await made.engine.start(made.sink)
        yield made
    finally:
        await made.engine.close()
    assert not made.sink.deaths
    await made.free()


async def test_its_facts_come_from_the_server(remote: Remote) -> None:
    facts = remote.engine.facts
    assert (facts.context_window, facts.vocab_size) == (WINDOW, TOKENIZER.get_vocab_size())
    assert facts.engine.startswith("vllm 0.")
    assert {Capability.TEXT, Capability.SALT} < set(facts.capabilities)
    assert Capability.TOKENS not in facts.capabilities


async def test_text_comes_step_by_step_and_ends_by_length(remote: Remote) -> None:
    outputs = await remote.run(remote.job("Once", logit_bias=NO_END))
    assert len(outputs) > 2
    assert [output.finish for output in outputs] == [None] * (len(outputs) - 1) + ["length"]
    usage = outputs[-1].usage
    assert (usage.completion_tokens, usage.source) == (8, "engine")
    counts = [output.usage.completion_tokens for output in outputs]
    assert counts == sorted(counts)


async def test_a_chat_takes_the_servers_own_template(remote: Remote) -> None:
    job = remote.job()
    body = b'{"messages":[{"role":"user","content":"What is Sluice?"}]}'
    outputs = await remote.run(msgspec.structs.replace(job, request_json=body))
    assert "Sluice" in text_of(outputs)


async def test_stop_strings_and_seeds_are_the_servers(remote: Remote) -> None:
    whole = text_of(await remote.run(remote.job(max_tokens=16, logit_bias=NO_END)))
    stop = whole[len(whole) // 2 :][:3]
    job = remote.job(max_tokens=16, logit_bias=NO_END, body={"stop": [stop]})
    outputs = await remote.run(job)
    assert text_of(outputs) == whole[: whole.index(stop)]
    assert outputs[-1].finish == "stop"
    seeded: dict[str, Any] = {"temperature": 1.0, "seed": 7, "max_tokens": 16}
    said = {text_of(await remote.run(remote.job(**seeded))) for _ in range(3)}
    assert len(said) == 1


async def test_what_an_output_must_match_is_held_by_the_server(remote: Remote) -> None:
    wanted = {"structured_outputs": {"choice": ["whole", "half"]}}
    outputs = await remote.run(remote.job(max_tokens=40, body=wanted))
    assert text_of(outputs) in ("whole", "half")
    assert outputs[-1].finish == "stop"


@pytest.mark.parametrize("chat", [True, False])
async def test_log_probabilities_are_of_the_tokens_that_are_text(
    remote: Remote, chat: bool
) -> None:
    messages = [{"role": "user", "content": "What is Sluice?"}]
    job = remote.job("Once", max_tokens=12, logprobs=2, logit_bias={} if chat else NO_END)
    if chat:
        job = msgspec.structs.replace(job, request_json=msgspec.json.encode({"messages": messages}))
    outputs = await remote.run(job)
    scores = [entry for output in outputs for entry in output.logprobs or ()]
    assert TOKENIZER.decode([entry.token for entry in scores]) == text_of(outputs)
    ends = outputs[-1].finish == "stop"
    assert len(scores) == outputs[-1].usage.completion_tokens - ends
    for entry in scores:
        assert len(entry.top) == 2 and entry.logprob == entry.top[0][1] <= 0.0


async def test_choices_are_told_apart(remote: Remote) -> None:
    job = remote.job(n=3, temperature=1.0, max_tokens=6, logit_bias=NO_END)
    outputs = await remote.run(job)
    assert all(text_of(outputs, choice) for choice in range(3))
    assert outputs[-1].usage.completion_tokens == 18


async def test_cached_tokens_are_told_and_tenants_share_none(remote: Remote) -> None:
    first = await remote.run(remote.job(300))
    again = await remote.run(remote.job(300))
    other = await remote.run(remote.job(300, salt=secrets.token_bytes(16)))
    cached = [outputs[-1].usage.cached_tokens for outputs in (first, again, other)]
    assert cached == [0, 299 // BLOCK_SIZE * BLOCK_SIZE, 0]


@pytest.mark.parametrize("state", ["asked", "prefill", "decoding", "finishing"])
async def test_a_cancel_frees_the_server_in_every_state(remote: Remote, state: str) -> None:
    limit = 2 if state == "finishing" else 1000
    job = remote.job(900, max_tokens=limit, logit_bias=NO_END)
    remote.engine.submit(job)
    if state == "prefill":
        await asyncio.sleep(0)
    elif state != "asked":
        await remote.begun(job)
    remote.engine.cancel(job.request)
    outputs = await remote.sink.finished(job.request)
    assert outputs[-1].finish in (("cancelled", "length") if limit == 2 else ("cancelled",))
    await remote.free()


async def test_what_was_cut_off_is_counted_exactly(remote: Remote) -> None:
    job = remote.job("Once", max_tokens=1000, logit_bias=NO_END)
    remote.engine.submit(job)
    await remote.sink.until(lambda: len(remote.sink.outputs[job.request]) >= 5)
    remote.engine.cancel(job.request)
    usage = (await remote.sink.finished(job.request))[-1].usage
    assert usage.source == "engine"
    assert usage.completion_tokens >= 5 and usage.prompt_tokens > 0


@pytest.mark.parametrize(
    ("prompt", "wanted", "code"),
    [
        (WINDOW + 1, {}, "too_long"),
        (40, {"body": {"response_format": {"type": "json_schema"}}}, "bad_request"),
        (40, {"n": 2}, "bad_request"),
    ],
)
async def test_what_the_server_refuses_is_refused_with_its_words(
    remote: Remote, prompt: int, wanted: dict[str, Any], code: str
) -> None:
    job = remote.job(prompt, **wanted)
    remote.engine.submit(job)
    await remote.sink.until(lambda: job.request in remote.sink.refused)
    refused = remote.sink.refused[job.request]
    assert refused.code == code
    assert str(refused) and SERVER_KEY not in str(refused)


@pytest.mark.parametrize(
    "undeclared", [{"prompt_logprobs": 1}, {"n": 0}, {"max_tokens": 0}, {"temperature": -1.0}]
)
async def test_what_is_not_offered_is_refused_by_field(
    remote: Remote, undeclared: dict[str, Any]
) -> None:
    (field,) = undeclared
    with pytest.raises(JobRefused, match=field):
        remote.engine.submit(remote.job(**undeclared))


async def test_a_wrong_key_is_an_error_at_the_start(vllm_http: VllmServer) -> None:
    options = RemoteOptions(url=vllm_http.url, name=SHIPPED.name, key="sk-wrong")
    engine = RemoteEngine(options)
    with pytest.raises(Exception, match="SLUICE_UPSTREAM_KEY"):
        await engine.start(Sink())
    await engine.close()
