"""I10: a real vLLM server, attached by its address and that of its cache events, without any
folder. What it tells of prompts is what it counts and caches: to a gateway here, and to processes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sized
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from controlplane.catalog.services import ModelDraft
from controlplane.gateway.nodes.limits import LinkLimits
from controlplane.kernel.receipt import Receipt, read_receipt
from inference.contract.capabilities import Capability
from tests.product.books import bills
from tests.support.fleet import MODEL
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.installation import CHAT, add_node, installation, post, request_of
from tests.support.money import rows
from tests.support.product import Plan
from tests.support.remote import remote_node
from tests.support.servers import Servers
from tests.support.vllm_server import WINDOW, VllmServer, vllm_server
from tests.support.waiting import until, wait_for

# Some minutes where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

ANSWER_S_MAX = 60.0
BLOCK_SIZE = 32
SYSTEM = {"role": "system", "content": "Answer in one word. " * 20}
TOOL = {
    "type": "function",
    "function": {"name": "depth", "parameters": {"type": "object", "properties": {}}},
}
CHATS: list[dict[str, Any]] = [
    {},
    {"tools": [TOOL], "tool_choice": "none"},
    {"reasoning_effort": "low"},
    {"chat_template_kwargs": {"enable_thinking": False}},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VllmServer, str]]:
    """The server, and the addresses of its cache events."""
    folder: Path = tmp_path_factory.mktemp("v")
    channel, replays = (f"ipc://{folder}/{end}" for end in ("kv", "replay"))
    events = {
        "enable_kv_cache_events": True, "publisher": "zmq", "endpoint": channel,
        "replay_endpoint": replays,
    }  # fmt: skip
    with vllm_server(folder / "log", "--kv-events-config", json.dumps(events)) as running:
        yield running, f"{channel},{replays}"


async def test_an_address_is_enough_for_an_exact_index_and_window(
    server: tuple[VllmServer, str],
) -> None:
    """Each chat is counted as it was told, and what the index expects the server delivers."""
    running, events = server
    gateway = GatewayUnderTest(limits=LinkLimits())
    upstream: dict[str, Any] = {"upstream_model": running.model, "kv_events": events}
    async with running_gateway(gateway) as client, remote_node(gateway, running.url, **upstream):
        await until(lambda: gateway.fleet.candidates(MODEL))
        served, index = gateway.fleet.models()[MODEL], gateway.fleet.index(BLOCK_SIZE)
        assert served.text is None and served.can(Capability.TOKENIZES)
        await until(lambda: not index.unknown)
        for changes in CHATS:
            first, prompt_tokens = await _asked(gateway, client, changes)
            full = (prompt_tokens - 1) // BLOCK_SIZE * BLOCK_SIZE
            await until(partial(_has, index, full // BLOCK_SIZE))
            counted = await client.post("/v1/preflight", json=_body(changes))
            assert counted.json()["tokens"]["prompt"] == prompt_tokens
            again, _ = await _asked(gateway, client, changes)
            assert (first.index, again.index) == ("exact", "exact")
            assert again.available_tokens == again.delivered_cached_tokens == full
        messages = [{"role": "user", "content": "harbour " * WINDOW}]
        answer = await client.post(
            "/v1/chat/completions", json=_body({"messages": messages}), timeout=ANSWER_S_MAX
        )
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        # By three miscounts it would be asked no more.
        assert served.can(Capability.TOKENIZES)


def test_through_processes_it_is_routed_to_by_what_it_caches_and_billed_by_what_it_counts(
    server: tuple[VllmServer, str], servers: Servers, tmp_path: Path
) -> None:
    running, events = server
    attached = ModelDraft(
        name="attached", pool="attached", context_window=WINDOW, output_tokens_default=64,
        output_tokens_max=64,
    )  # fmt: skip
    turn = {"role": "user", "content": "And how wide?"}
    asked: dict[str, Any] = {"model": attached.name, "messages": [SYSTEM, turn]}
    with installation(servers, Plan(nodes=0)) as product:
        upstream = ("--url", running.url, "--upstream-model", running.model, "--kv-events", events)
        name = ("--engine", "remote", "--model-name", attached.name)
        add_node(product, tmp_path, attached, *name, *upstream)
        product.mend()

        def answered() -> httpx2.Response:
            answer = post(product, CHAT, max_tokens=4, temperature=0, **asked)
            assert answer.status_code == 200, answer.text
            return answer

        used = answered().json()["usage"]
        prompt = used["prompt_tokens"]
        full = (prompt - 1) // BLOCK_SIZE * BLOCK_SIZE
        counted = post(product, "/v1/preflight", **asked).json()
        assert counted["tokens"]["prompt"] == prompt

        def receipt() -> Receipt:
            request = uuid.UUID(hex=request_of(answered()))
            found = "SELECT receipt FROM request_records WHERE request = %s"
            wait_for(lambda: rows(found, request), "the record")
            return read_receipt(bytes(rows(found, request)[0][0]))

        # Its events have told of the blocks.
        wait_for(lambda: receipt().available_tokens == full, "the index")
        answer, found = answered(), receipt()
        assert (found.index, found.delivered_cached_tokens) == ("exact", full)
        used = answer.json()["usage"]
        assert used["prompt_tokens_details"]["cached_tokens"] == full
        wait_for(lambda: request_of(answer) in bills(), "the bill")
        assert bills()[request_of(answer)].output == used["completion_tokens"]
        asked["messages"] = [{"role": "user", "content": "harbour " * WINDOW}]
        refused = post(product, CHAT, **asked).json()["error"]
        assert refused["code"] == "context_length_exceeded"


def _has(index: Sized, blocks: int) -> bool:
    return len(index) >= blocks


async def _asked(
    gateway: GatewayUnderTest, client: httpx2.AsyncClient, changes: dict[str, Any]
) -> tuple[Receipt, int]:
    """Why a chat went where it did, and the tokens of its prompt that were charged."""
    answer = await client.post("/v1/chat/completions", json=_body(changes), timeout=ANSWER_S_MAX)
    assert answer.status_code == 200, answer.text
    await gateway.at_rest()
    counts = list(gateway.ledger.settled.values())[-1].counts
    receipt = read_receipt(gateway.recorder.records[-1].receipt)
    return receipt, counts.uncached + counts.cached


def _body(changes: dict[str, Any]) -> dict[str, Any]:
    messages = [SYSTEM, {"role": "user", "content": "How deep is the harbour?"}]
    return {"model": MODEL, "messages": messages, "max_tokens": 4, "temperature": 0, **changes}
