"""P10: images in requests, in all shapes: refused by name, or decoded, shrunk, counted and paid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controlplane.kernel.price import charge_nano
from controlplane.kernel.receipt import read_receipt
from inference.contract.capabilities import Capability
from inference.contract.parts import PICTURE_MARK_TOKENS
from inference.engines.remote.engine import RemoteEngine
from inference.engines.remote.server import RemoteOptions
from tests.inference.engines.sink import Sink
from tests.support.fleet import MODEL
from tests.support.pictures import PATCH, TOKENS_MAX, data_url, image_file, image_part, picture_of
from tests.support.pictures import seeing as sees
from tests.support.ports import PRICE
from tests.support.relay import Relay, relaying
from tests.support.serving import CHAT_PATH, Serving
from tests.support.upstream import hand_upstream, text_chunk, usage_chunk
from tests.support.waiting import until

TEXT = {"type": "text", "text": "What is this?"}
BIG = (1200, 600)


def said(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


@pytest.fixture
async def relay(bare: Serving) -> AsyncIterator[Relay]:
    """A server that takes images, behind a model that does."""
    bare.under_test.keys.current = sees(bare.under_test.keys.current)
    async with relaying(bare, vision="on") as made:
        yield made


async def test_an_image_reaches_the_server_in_its_place_and_in_the_models_size(
    relay: Relay,
) -> None:
    big = image_part(data_url(image_file(BIG, mode="P")), detail="high")
    asked, exchange = await relay.ask(messages=said(TEXT, big, {"type": "text", "text": "Hm?"}))
    (message,) = exchange.body["messages"]
    first, shown, last = message["content"]
    assert (first, last) == (TEXT, {"type": "text", "text": "Hm?"})
    assert shown["type"] == "image_url"
    assert shown["image_url"]["detail"] == "high"
    picture = picture_of(shown["image_url"]["url"])
    assert picture.format == "JPEG"
    width, height = picture.size
    squares = -(-width // PATCH) * -(-height // PATCH)
    assert squares <= TOKENS_MAX
    assert width / height == pytest.approx(2, rel=0.02)
    seen = picture.convert("RGB").tobytes()
    assert min(seen[::3]) > 240
    assert max(*seen[1::3], *seen[2::3]) < 15
    await exchange.answer(text_chunk("red", finish="stop"), usage_chunk(70, 2))
    body = (await asked).json()
    assert body["usage"]["prompt_tokens"] == 70
    counts = relay.last_counts
    assert counts.uncached == 70
    (settled,) = relay.under_test.ledger.settled.values()
    assert settled.amount_nano == charge_nano(PRICE, counts)
    (record,) = relay.under_test.recorder.records
    assert read_receipt(record.receipt).images == 1


async def test_the_hold_covers_what_the_images_can_take(relay: Relay) -> None:
    """Even where the server counts more: no more than was held is charged."""
    asked, exchange = await relay.ask(messages=said(TEXT, image_part()))
    (hold,) = relay.under_test.ledger.open.values()
    await exchange.answer(text_chunk("red", finish="stop"), usage_chunk(4000, 6))
    body = (await asked).json()
    (settled,) = relay.under_test.ledger.settled.values()
    assert settled.amount_nano <= hold.amount_nano
    assert body["usage"]["prompt_tokens"] >= TOKENS_MAX + PICTURE_MARK_TOKENS
    assert body["usage"]["prompt_tokens"] < 400


async def test_all_shapes_show_what_tools_have_shown_to_the_user(relay: Relay) -> None:
    url = data_url(image_file())
    source = {"type": "base64", "media_type": "image/png", "data": url.partition(",")[2]}
    block, call = {"type": "image", "source": source}, {"id": "c1", "name": "look"}
    seen = {"type": "tool_result", "tool_use_id": "c1", "content": [{**TEXT}, block]}
    used = {"type": "tool_use", "input": {}, **call}
    messages = [
        *said(block, TEXT),
        {"role": "assistant", "content": [used]},
        {"role": "user", "content": [seen, TEXT]},
    ]
    body = {"model": MODEL, "messages": messages, "max_tokens": 6}
    asked = asyncio.create_task(relay.serving.client.post("/v1/messages", json=body))
    exchange = await relay.upstream.next()
    first, _, result, shown = exchange.body["messages"]
    assert [part["type"] for part in first["content"]] == ["image_url", "text"]
    assert result == {"role": "tool", "content": TEXT["text"], "tool_call_id": "c1"}
    assert [part["type"] for part in shown["content"]] == ["image_url", "text"]
    await exchange.answer(text_chunk("red", finish="stop"), usage_chunk(40, 2))
    assert (await asked).status_code == 200
    image = {"type": "input_image", "image_url": url, "detail": "low"}
    items: list[dict[str, Any]] = [
        *said({"type": "input_text", "text": "Look"}),
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [image]},
        *said(image),
    ]
    body = {"model": MODEL, "input": items, "max_output_tokens": 6}
    asked = asyncio.create_task(relay.serving.client.post("/v1/responses", json=body))
    exchange = await relay.upstream.next()
    _, _, result, shown, last = exchange.body["messages"]
    assert (result["role"], result["content"]) == ("tool", "")
    for turn in (shown, last):
        (part,) = turn["content"]
        assert (turn["role"], part["image_url"]["detail"]) == ("user", "low")
        assert picture_of(part["image_url"]["url"]).size == (64, 32)
    await exchange.answer(text_chunk("red", finish="stop"), usage_chunk(40, 2))
    assert (await asked).status_code == 200
    await until(lambda: not relay.under_test.world.bodies.used)


async def refused(serving: Serving, path: str, **fields: Any) -> dict[str, Any]:
    """The error of a request that must be refused with 400, with nothing charged."""
    body = {"model": MODEL, "max_tokens": 6, **fields}
    answer = await serving.client.post(path, json=body)
    assert answer.status_code == 400, answer.text
    await serving.under_test.at_rest()
    assert not any(each.amount_nano for each in serving.under_test.ledger.settled.values())
    error: dict[str, Any] = answer.json()["error"]
    return error


async def test_a_model_that_does_not_see_refuses_images_by_name(serving: Serving) -> None:
    url = data_url(image_file())
    error = await refused(serving, CHAT_PATH, messages=said(TEXT, image_part()))
    assert error["param"] == "messages[0].content[1]"
    assert error["message"] == "This model does not accept image parts."
    block = {"type": "image", "source": {"type": "url", "url": "https://images.example/a.png"}}
    error = await refused(serving, "/v1/messages", messages=said(block))
    assert "does not accept image parts" in error["message"]
    image = {"type": "input_image", "image_url": url}
    body = {"model": MODEL, "input": [*said({"type": "input_text", "text": "a"}), *said(image)]}
    answer = await serving.client.post("/v1/responses", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input[1].content[0]"
    answer = await serving.client.post(
        "/v1/tokenize", json={"model": MODEL, "messages": said(image_part())}
    )
    assert answer.json()["error"]["param"] == "messages[0].content[0]"


async def test_a_node_that_does_not_see_gets_no_images(serving: Serving) -> None:
    """Its model is meant to; an echo is not able to."""
    serving.under_test.keys.current = sees(serving.under_test.keys.current)
    error = await refused(serving, CHAT_PATH, messages=said(TEXT, image_part()))
    assert (error["param"], error["code"]) == ("messages[0].content[1]", "unsupported_parameter")
    (listed,) = (await serving.client.get("/v1/models")).json()["data"]
    assert "vision" not in listed["abilities"]


FAULTS: list[tuple[str, str]] = [
    ("https://images.example/a.png", "not allowed"),
    ("http://127.0.0.1/a.png", "not allowed"),
    ("file:///etc/passwd", "data URL"),
    ("data:,", "data URL"),
    ("data:image/png;base64,????", "cannot be read"),
    (data_url(b"no image"), "cannot be read"),
    (data_url(image_file()[:-30]), "cannot be read"),
    (data_url(image_file(form="BMP"), "image/bmp"), "cannot be read"),
    (data_url(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml"), "cannot be read"),
    (data_url(image_file(form="GIF", frames=2), "image/gif"), "animated"),
    (data_url(image_file(form="WEBP", frames=2), "image/webp"), "animated"),
    (data_url(image_file(form="PNG", frames=2)), "animated"),
    (data_url(image_file((8193, 4097), mode="1")), "pixels"),
]


async def test_images_that_cannot_be_taken_are_refused_by_their_place(relay: Relay) -> None:
    for url, why in FAULTS:
        error = await refused(
            relay.serving, CHAT_PATH, messages=said(TEXT, image_part(), image_part(url))
        )
        assert error["param"] == "messages[0].content[2]", url[:40]
        assert why in error["message"]
    error = await refused(relay.serving, CHAT_PATH, messages=said(*[image_part()] * 3))
    assert error["param"] == "messages[0].content[2]"
    assert "at most 2 images" in error["message"]
    system = [{"role": "system", "content": [image_part()]}, *said(TEXT)]
    error = await refused(relay.serving, CHAT_PATH, messages=system)
    assert error["param"] == "messages[0].content[0]"
    await until(lambda: not relay.under_test.world.bodies.used)
    assert relay.upstream.exchanges.empty()


async def test_images_count_in_the_context_window(relay: Relay) -> None:
    keys = relay.under_test.keys
    keys.current = sees(keys.current, context_window=TOKENS_MAX + 32)
    big = image_part(data_url(image_file(BIG)))
    error = await refused(relay.serving, CHAT_PATH, messages=said(big, big))
    assert error["code"] == "context_length_exceeded"


async def test_the_list_of_models_tells_who_sees(relay: Relay) -> None:
    (listed,) = (await relay.serving.client.get("/v1/models")).json()["data"]
    assert "vision" in listed["abilities"]


async def test_a_server_that_says_so_sees_unless_its_node_denies_it(bare: Serving) -> None:
    bare.under_test.keys.current = sees(bare.under_test.keys.current)
    rows = (
        {"architecture": {"input_modalities": ["text", "image"]}},
        {"capabilities": ["completion", "multimodal"]},
        {"abilities": ["tools", "vision"]},
    )
    for row in rows:
        async with hand_upstream() as upstream:
            upstream.listed = [{"id": MODEL, "context_window": 4096, **row}]
            for vision, able in (("auto", True), ("off", False)):
                engine = RemoteEngine(RemoteOptions(url=upstream.url, name=MODEL, vision=vision))
                await engine.start(Sink())
                assert (Capability.VISION in engine.facts.capabilities) is able
                await engine.close()
