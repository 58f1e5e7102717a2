"""Stored responses by the official client, behind a gateway whose ports are in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import openai
import pytest
from openai import AsyncOpenAI

from controlplane.gateway.responses import kept
from controlplane.kernel.contents.kept import KeptContent
from controlplane.kernel.money import usd_text
from tests.support.described import answer_shape, check_described
from tests.support.fleet import MODEL, echo_node
from tests.support.ports import KEY, PROJECT, make_key
from tests.support.serving import Serving
from tests.support.waiting import until

OTHER_KEY, OTHER_PROJECT = "sk_other", "c" * 32
ASKED: Any = {"model": MODEL, "input": "abcd", "max_output_tokens": 6}
LONG: Any = {**ASKED, "max_output_tokens": 1_000}


@pytest.fixture
def keeping(steady: Serving) -> Serving:
    """Two projects that keep content, each with a key."""
    keys = steady.under_test.keys
    project = msgspec.structs.replace(keys.current.projects[PROJECT], keeps_days=30)
    other = msgspec.structs.replace(project, id=OTHER_PROJECT)
    projects = {PROJECT: project, OTHER_PROJECT: other}
    keys.current = msgspec.structs.replace(keys.current, projects=projects)
    keys.keys[OTHER_KEY] = make_key(id="o" * 32, project=OTHER_PROJECT)
    return steady


@pytest.fixture
async def client(keeping: Serving) -> AsyncIterator[AsyncOpenAI]:
    """A client of the first project; an echo node makes 200 tokens a second."""
    async with (
        echo_node(keeping.under_test.fleet_url, keeping.model, tokens_per_s=200.0),
        AsyncOpenAI(base_url=f"{keeping.under_test.url}/v1", api_key=KEY, max_retries=0) as client,
    ):
        await keeping.under_test.served()
        yield client
        await keeping.under_test.at_rest()
        assert not keeping.under_test.world.background


def rows(keeping: Serving) -> list[KeptContent]:
    return list(keeping.under_test.contents.kept.values())


async def ended(client: AsyncOpenAI, response: str) -> Any:
    """The response, once it is under way no longer."""

    async def over() -> bool:
        return (await client.responses.retrieve(response)).status not in ("queued", "in_progress")

    await until(over)
    return await client.responses.retrieve(response)


async def test_a_response_is_stored_unless_refused(client: AsyncOpenAI, keeping: Serving) -> None:
    answer = await client.responses.with_raw_response.create(**ASKED)
    assert "store" not in answer.headers.get("x-sluice-ignored", "")
    told = answer.parse()
    assert told.store is True
    again = await client.responses.retrieve(told.id)
    assert again == told
    refused = await client.responses.create(**ASKED, store=False)
    assert refused.store is False
    with pytest.raises(openai.NotFoundError) as missing:
        await client.responses.retrieve(refused.id)
    assert missing.value.code == "response_not_found"


async def test_a_stream_is_stored_before_it_ends(client: AsyncOpenAI) -> None:
    events = [event async for event in await client.responses.create(**ASKED, stream=True)]
    last = events[-1]
    assert last.type == "response.incomplete"
    assert events[0].type == "response.created"
    assert events[0].response.store is last.response.store is True
    assert await client.responses.retrieve(last.response.id) == last.response


async def test_a_response_follows_another(client: AsyncOpenAI, keeping: Serving) -> None:
    first = await client.responses.create(**ASKED, instructions="Rules.")
    second = await client.responses.create(
        **{**ASKED, "input": "more"}, previous_response_id=first.id
    )
    assert second.previous_response_id == first.id
    assert second.instructions is None
    third = await client.responses.create(
        **{**ASKED, "input": [{"role": "user", "content": "end"}]}, previous_response_id=second.id
    )
    said = first.output_text, second.output_text
    # The template joins what all have said, and a byte is a token.
    assert third.usage is not None
    assert third.usage.input_tokens == len("".join(["abcd", said[0], "more", said[1], "end"]))
    listed: Any = client.responses.input_items.list(third.id, order="asc")
    items = [item async for item in listed]
    texts = [part.text for item in items for part in item.content]
    assert texts == ["abcd", said[0], "more", said[1], "end"]
    assert [item.role for item in items] == ["user", "assistant", "user", "assistant", "user"]
    paged = [item.id async for item in client.responses.input_items.list(third.id, limit=2)]
    assert paged == [item.id for item in reversed(items)]


async def test_stored_responses_are_as_described(client: AsyncOpenAI, keeping: Serving) -> None:
    ask, path = keeping.client.request, "/v1/responses"
    for cancels in (False, True):
        body = {**(LONG if cancels else ASKED), "background": True}
        told = (await ask("POST", path, json=body)).json()
        check_described(told, answer_shape(path))
        at = f"{path}/{told['id']}"
        shown = [("GET", f"{path}/{{response}}", at)]
        if cancels:
            shown.append(("POST", f"{path}/{{response}}/cancel", f"{at}/cancel"))
        else:
            await ended(client, told["id"])
        shown.append(("GET", f"{path}/{{response}}/input_items", f"{at}/input_items?order=asc"))
        shown.append(("DELETE", f"{path}/{{response}}", at))
        for method, described, url in shown:
            answer = await ask(method, url)
            assert answer.status_code == 200, answer.text
            check_described(answer.json(), answer_shape(described, method.lower()))


async def test_a_call_of_a_tool_is_answered_by_its_output_alone(
    client: AsyncOpenAI, keeping: Serving
) -> None:
    first = await client.responses.create(**ASKED)
    ((place, row),) = keeping.under_test.contents.kept.items()
    called = {"type": "function_call", "call_id": "call_1", "name": "book", "arguments": "{}"}
    response = msgspec.json.decode(row.response) | {"output": [called]}
    changed = msgspec.structs.replace(row, response=msgspec.json.encode(response))
    keeping.under_test.contents.kept[place] = changed
    output: Any = [{"type": "function_call_output", "call_id": "call_1", "output": "Booked."}]
    follow: Any = {**ASKED, "input": output, "previous_response_id": first.id}
    assert (await client.responses.create(**follow)).status == "incomplete"
    output[0]["call_id"] = "call_2"
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(**follow)
    assert refused.value.param == "input[0].tool_call_id"


async def test_what_is_not_there_is_told_so(client: AsyncOpenAI, keeping: Serving) -> None:
    with pytest.raises(openai.BadRequestError) as unknown:
        await client.responses.create(**ASKED, previous_response_id="resp_" + "0" * 32)
    assert unknown.value.code == "previous_response_not_found"
    assert unknown.value.param == "previous_response_id"
    told = await client.responses.create(**ASKED)
    other = client.with_options(api_key=OTHER_KEY)
    for ask in (
        other.responses.retrieve, other.responses.delete, other.responses.cancel,
        other.responses.input_items.list,
    ):  # fmt: skip
        with pytest.raises(openai.NotFoundError):
            await ask(told.id)
    with pytest.raises(openai.BadRequestError):
        await other.responses.create(**ASKED, previous_response_id=told.id)
    for wrong in ({"limit": 0}, {"limit": 101}, {"order": "up"}, {"after": "msg_0"}):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.input_items.list(told.id, **wrong)
        assert [refused.value.param] == list(wrong)
    with pytest.raises(openai.BadRequestError):
        await client.responses.retrieve(told.id, stream=True)
    with pytest.raises(openai.BadRequestError):
        await client.responses.cancel(told.id)
    await client.responses.delete(told.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(told.id)


async def test_a_project_that_keeps_nothing_says_so(client: AsyncOpenAI, keeping: Serving) -> None:
    projects = keeping.under_test.keys.current.projects
    projects[PROJECT] = msgspec.structs.replace(projects[PROJECT], keeps_days=0)
    for sent, ignored in ((True, "store"), (False, ""), (None, "")):
        answer = await client.responses.with_raw_response.create(**ASKED, store=sent)
        assert answer.headers.get("x-sluice-ignored", "") == ignored
        told = answer.parse()
        assert told.store is False
        with pytest.raises(openai.NotFoundError, match="does not keep content"):
            await client.responses.retrieve(told.id)
    for field in ({"background": True}, {"previous_response_id": "resp_1"}):
        with pytest.raises(openai.BadRequestError, match="does not keep content") as refused:
            await client.responses.create(**ASKED, **field)
        assert refused.value.code == "unsupported_parameter"
        assert [refused.value.param] == list(field)
    assert not rows(keeping)


async def test_an_answer_that_cannot_be_stored_says_so(
    client: AsyncOpenAI, keeping: Serving
) -> None:
    keeping.under_test.contents.away = True
    assert (await client.responses.create(**ASKED)).store is False
    events = [event async for event in await client.responses.create(**ASKED, stream=True)]
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.store is False
    for failing in (
        client.responses.create(**ASKED, background=True),
        client.responses.create(**ASKED, previous_response_id="resp_" + "0" * 32),
        client.responses.retrieve("resp_" + "0" * 32),
    ):
        with pytest.raises(openai.InternalServerError) as away:
            await failing
        assert away.value.code == "contents_unavailable"
    assert len(keeping.under_test.ledger.settled) == 3


async def test_a_background_response_is_polled(client: AsyncOpenAI, keeping: Serving) -> None:
    queued = await client.responses.create(**ASKED, background=True)
    assert (queued.status, queued.background, queued.output) == ("queued", True, [])
    told = await ended(client, queued.id)
    assert (told.status, told.background) == ("incomplete", True)
    assert told.usage is not None
    assert told.usage.output_tokens == 6
    # The charge that the client reads is the one on the ledger.
    (settled,) = keeping.under_test.ledger.settled.values()
    assert told.model_extra["sluice"]["cost_usd"] == usd_text(settled.amount_nano)
    assert await client.responses.cancel(queued.id) == told


async def test_a_background_stream_goes_on_without_its_client(
    client: AsyncOpenAI, keeping: Serving
) -> None:
    asked = {**ASKED, "max_output_tokens": 100}
    async with await client.responses.create(**asked, background=True, stream=True) as stream:
        first = await anext(stream)
    assert first.type == "response.created"
    told = await ended(client, first.response.id)
    assert told.usage.output_tokens == 100


async def test_a_cancelled_response_stays_cancelled(client: AsyncOpenAI, keeping: Serving) -> None:
    queued = await client.responses.create(**LONG, background=True)
    with pytest.raises(openai.BadRequestError):
        await client.responses.delete(queued.id)
    with pytest.raises(openai.BadRequestError):
        await client.responses.create(**ASKED, previous_response_id=queued.id)
    assert (await client.responses.retrieve(queued.id)).status == "in_progress"
    told = await client.responses.cancel(queued.id)
    assert told.status == "cancelled"
    await keeping.under_test.at_rest()
    assert (await client.responses.cancel(queued.id)).status == "cancelled"
    assert (await client.responses.retrieve(queued.id)).status == "cancelled"
    (settled,) = keeping.under_test.ledger.settled.values()
    assert settled.counts.output < 1_000


async def test_one_that_ends_while_it_is_cancelled_stays_as_it_ended(
    client: AsyncOpenAI, keeping: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents, world = keeping.under_test.contents, keeping.under_test.world
    read = contents.read

    async def slow(project: str, request: bytes) -> KeptContent | None:
        found = await read(project, request)
        await until(lambda: not world.background)
        return found

    queued = await client.responses.create(**{**ASKED, "max_output_tokens": 100}, background=True)
    monkeypatch.setattr(contents, "read", slow)
    assert (await client.responses.cancel(queued.id)).status == "incomplete"
    assert (await client.responses.retrieve(queued.id)).status == "incomplete"
    assert len(keeping.under_test.ledger.settled) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_one_that_is_cancelled_as_it_ends_tells_of_no_other_end(
    client: AsyncOpenAI, keeping: Serving, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    contents = keeping.under_test.contents
    keep_end = contents.keep_end

    async def late(content: KeptContent) -> bool:
        (row,) = rows(keeping)
        assert await keep_end(kept.ended(row, status="cancelled"))
        return await keep_end(content)

    monkeypatch.setattr(contents, "keep_end", late)
    body = {**ASKED, "background": True, "stream": stream}
    text = (await keeping.client.post("/v1/responses", json=body)).text if not stream else ""
    if stream:
        with pytest.raises(httpx2.RemoteProtocolError):
            async with keeping.client.stream("POST", "/v1/responses", json=body) as answer:
                async for part in answer.aiter_text():
                    text += part
    await keeping.under_test.at_rest()
    assert '"status":"in_progress"' in text or not stream
    assert "response.incomplete" not in text and "response.completed" not in text
    assert [each.status for each in rows(keeping)] == ["cancelled"]
    (settled,) = keeping.under_test.ledger.settled.values()
    assert settled.counts.output == ASKED["max_output_tokens"]


@pytest.mark.parametrize("forgotten", [False, True])
async def test_one_that_was_cancelled_elsewhere_ends(
    client: AsyncOpenAI, keeping: Serving, monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    monkeypatch.setattr(kept, "CHECK_S", 0.01)
    queued = await client.responses.create(**LONG, background=True)
    contents = keeping.under_test.contents.kept
    ((place, row),) = contents.items()
    if forgotten:
        del contents[place]
    else:
        contents[place] = kept.ended(row, status="cancelled")
    await keeping.under_test.at_rest()
    await until(lambda: not keeping.under_test.world.background)
    assert [each.status for each in rows(keeping)] == ["cancelled"] * (not forgotten)
    assert queued.status == "queued"


async def test_what_its_gateway_left_has_failed(client: AsyncOpenAI, keeping: Serving) -> None:
    queued = await client.responses.create(**LONG, background=True)
    keeping.under_test.world.request_deadline_s -= 10_000
    told = await client.responses.retrieve(queued.id)
    assert told.status == "failed"
    assert told.error is not None
    assert told.error.code == "server_error"
    keeping.under_test.world.request_deadline_s += 10_000
    await client.responses.cancel(queued.id)


async def test_a_background_response_that_fails_says_why(
    client: AsyncOpenAI, keeping: Serving
) -> None:
    queued = await client.responses.create(**LONG, background=True)
    await keeping.under_test.fleet.close()
    told = await ended(client, queued.id)
    assert told.status == "failed"
    assert told.error.code == "server_is_overloaded"
    assert [each.amount_nano for each in keeping.under_test.ledger.settled.values()] == [0]


async def test_only_so_many_run_in_the_background(
    client: AsyncOpenAI, keeping: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "BACKGROUND_MAX", 4)
    running = [await client.responses.create(**LONG, background=True) for _ in range(2)]
    other = client.with_options(api_key=OTHER_KEY)
    with pytest.raises(openai.InternalServerError, match="background responses"):
        await other.responses.create(**LONG, background=True)
    for each in running:
        await client.responses.cancel(each.id)
