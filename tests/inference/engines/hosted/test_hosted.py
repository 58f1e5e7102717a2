"""Models of hosted providers: keys in turns, their limits, rotation, and Anthropic's dialect."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import msgspec
import pytest

from inference.engines.hosted.engine import HostedEngine, HostedOptions
from inference.errors import JobRefused, ModelError
from tests.inference.engines.hosted.rig import ANSWER, Rig, connection, started
from tests.inference.engines.remote.rig import make_job
from tests.inference.engines.sink import Sink
from tests.support.upstream import HandUpstream
from tests.support.waiting import until


def _key(headers: dict[str, str]) -> str:
    return headers["authorization"].removeprefix("Bearer ")


async def test_a_chat_travels_as_it_is_and_the_providers_count_is_the_bill(
    upstream: HandUpstream,
) -> None:
    async with started(connection(upstream.url, "a", model={"max_output": 5})) as rig:
        assert rig.engine.facts.models == (("ours", 4096),)
        rig.engine.submit(job := make_job())
        seen = await upstream.next()
        assert (seen.path, _key(seen.headers)) == ("/v1/chat/completions", "a")
        assert seen.body["model"] == "big"
        # What the provider allows, under the name that covers thoughts.
        assert seen.body["max_completion_tokens"] == 5
        assert seen.body["stream_options"] == {"include_usage": True}
        await seen.answer(*ANSWER)
        usage = await rig.usage(job)
        assert (usage.prompt_tokens, usage.completion_tokens, usage.source) == (7, 1, "engine")


async def test_a_key_at_its_limit_rests_and_another_takes_the_job(upstream: HandUpstream) -> None:
    async with started(connection(upstream.url, "a", "b")) as rig:
        rig.engine.submit(job := make_job())
        first = await upstream.next()
        await first.begin(429, "application/json", "retry-after: 60")
        await first.end()
        second = await upstream.next()
        assert {_key(first.headers), _key(second.headers)} == {"a", "b"}
        await second.answer(*ANSWER)
        assert (await rig.usage(job)).prompt_tokens == 7
        # The first still rests.
        rig.engine.submit(job := make_job())
        third = await upstream.next()
        assert _key(third.headers) == _key(second.headers)
        await third.begin(429, "application/json", "retry-after: 60")
        await third.end()
        await rig.sink.until(lambda: job.request in rig.sink.refused)
        assert rig.sink.refused[job.request].code == "full"
        with pytest.raises(JobRefused, match="every key of this model rests") as refused:
            rig.engine.submit(make_job())
        assert refused.value.code == "full"


async def test_the_key_with_the_most_left_is_taken(upstream: HandUpstream) -> None:
    left = {"a": 10, "b": 90}
    async with started(connection(upstream.url, "a", "b")) as rig:
        taken = []
        for _ in range(4):
            rig.engine.submit(job := make_job())
            seen = await upstream.next()
            taken.append(key := _key(seen.headers))
            told = [f"x-ratelimit-{name}-tokens: {value}" for name, value in (
                ("remaining", left[key]), ("limit", 100), ("reset", "60s"))]  # fmt: skip
            await seen.begin(200, "text/event-stream", *told)
            for chunk in ANSWER:
                await seen.event(chunk)
            await seen.event("[DONE]")
            await seen.end()
            await rig.usage(job)
        assert set(taken[:2]) == {"a", "b"}
        assert taken[2:] == ["b", "b"]


async def test_a_key_that_is_refused_is_told_without_its_secret(
    upstream: HandUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(connection(upstream.url, "sk-secret-1", "sk-secret-2")) as rig:
        rig.engine.submit(job := make_job())
        first = await upstream.next()
        await first.refuse(401, {"error": {"message": f"Bad key {_key(first.headers)}"}})
        second = await upstream.next()
        await second.answer(*ANSWER)
        await rig.usage(job)
    assert f"key=id-{_key(first.headers)}" in caplog.text
    assert f"Bad key {_key(first.headers)}" not in caplog.text


async def test_keys_are_rotated_under_running_jobs(upstream: HandUpstream) -> None:
    async with started(connection(upstream.url, "old")) as rig:
        rig.engine.submit(job := make_job())
        running = await upstream.next()
        rig.configure(
            connection(upstream.url, "new", models=[
                {"name": "ours", "upstream": "big", "context_window": 4096},
                {"name": "more", "upstream": "small", "context_window": 512},
            ])
        )  # fmt: skip
        await until(lambda: len(rig.engine.facts.models) == 2)
        rig.engine.submit(msgspec.structs.replace(make_job(), model="more"))
        fresh = await upstream.next()
        assert (_key(fresh.headers), fresh.body["model"]) == ("new", "small")
        await running.answer(*ANSWER)
        assert (await rig.usage(job)).prompt_tokens == 7
        # A line that cannot be read changes nothing.
        rig.lines.put_nowait(b'{"connections": [{"name": 1}]}\n')
        rig.engine.submit(make_job())
        assert _key((await upstream.next()).headers) == "new"
        # The last key is revoked: nothing is asked with it any more.
        rig.configure(connection(upstream.url))
        await until(lambda: not rig.lines.qsize())
        with pytest.raises(JobRefused, match="no connection serves"):
            rig.engine.submit(make_job())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"nonsense\n", "malformed"),
        (b'{"connections": []}\n', "none has a key and a model"),
        (json.dumps({"connections": [connection("http://a/v1", "s", kind="tgi")]}).encode(),
            "none has a key and a model"),
        (json.dumps({"connections": [connection("nowhere", "s")]}).encode(),
            "none has a key and a model"),
    ],
)  # fmt: skip
async def test_what_cannot_be_served_is_said_at_the_start(line: bytes, said: str) -> None:
    rig = Rig()
    rig.lines.put_nowait(line)
    with pytest.raises(ModelError, match=said):
        await rig.engine.start(rig.sink)
    await rig.engine.close()


async def test_one_connection_that_cannot_be_served_leaves_the_others(
    upstream: HandUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = {**connection("nowhere", "sk-secret"), "name": "two"}
    async with started(connection(upstream.url, "a"), wrong) as rig:
        rig.engine.submit(make_job())
        assert _key((await upstream.next()).headers) == "a"
    assert "'two'" in caplog.text and "--url" in caplog.text and "sk-secret" not in caplog.text


async def test_the_end_of_the_input_is_the_end_of_the_engine(upstream: HandUpstream) -> None:
    async def lines() -> AsyncIterator[bytes]:
        yield json.dumps({"connections": [connection(upstream.url, "a")]}).encode()

    sink = Sink()
    engine = HostedEngine(HostedOptions(credits=8), lines=lines)
    await engine.start(sink)
    await sink.until(lambda: bool(sink.deaths))
    await engine.close()


async def test_azure_is_asked_by_deployment_and_version(upstream: HandUpstream) -> None:
    root = upstream.url.removesuffix("/v1")
    azure = connection(root, "a", kind="azure", api_version="2024-10-21")
    async with started(azure) as rig:
        rig.engine.submit(make_job())
        seen = await upstream.next()
        path = "/openai/deployments/big/chat/completions?api-version=2024-10-21"
        assert (seen.path, seen.headers["api-key"]) == (path, "a")
