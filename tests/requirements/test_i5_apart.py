"""I5: prefill and decode on different machines, here two real vLLM servers whose connector (NIXL)
moves keys and values from the one to the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx2
import pytest

from controlplane.gateway.nodes.limits import LinkLimits
from controlplane.kernel.price import TokenCounts
from controlplane.kernel.receipt import Receipt, read_receipt
from tests.support.fleet import MODEL
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.loopback import reserve_port
from tests.support.remote import remote_node
from tests.support.shipped import SHIPPED
from tests.support.vllm_server import ROOT, VllmServer, end_group, vllm_server
from tests.support.waiting import until

# Some minutes where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

ANSWER_S_MAX = 60.0
ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
NIXL = ROOT / ".nixl"
# More than is worth handing over.
QUESTION = "Where is the harbour, and who built the lock? " * 40


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, VllmServer]]:
    """A server of each role."""
    assert NIXL.exists(), f"{NIXL} is missing: run `make test`"
    folder = tmp_path_factory.mktemp("apart")

    def start(stack: contextlib.ExitStack, role: str) -> VllmServer:
        config = {
            "kv_connector": "NixlConnector", "kv_role": ROLES[role], "kv_buffer_device": "cpu",
        }  # fmt: skip
        variables = {"PYTHONPATH": str(NIXL), "VLLM_NIXL_SIDE_CHANNEL_PORT": str(reserve_port())}
        arguments = ("--kv-transfer-config", json.dumps(config))
        server = vllm_server(folder / role, *arguments, variables=variables)
        return stack.enter_context(server)

    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(ROLES)) as pool:
        yield dict(zip(ROLES, pool.map(partial(start, stack), ROLES), strict=True))


async def test_one_server_computes_the_prompt_and_the_other_the_answer(
    pair: dict[str, VllmServer],
) -> None:
    """The text is that of one server alone, the prompt is computed and charged once, and without
    the first server the second does it all.
    """
    # With the times of production: something heavy runs beside it.
    gateway = GatewayUnderTest(limits=LinkLimits())
    async with running_gateway(gateway) as client, contextlib.AsyncExitStack() as stack:
        for role, server in pair.items():
            upstream = {"upstream_model": server.model, "kv_role": role}
            node = remote_node(gateway, server.url, name=role, folder=SHIPPED, **upstream)
            await stack.enter_async_context(node)
        await until(lambda: gateway.fleet.candidates(MODEL))
        before = _prompt_tokens(pair["decode"])
        text, receipt, counts = await _asked(gateway, client, QUESTION)
        prompt = counts.uncached
        assert (counts.cached, counts.output) == (0, 8)
        assert (receipt.prefill, receipt.node) == ("prefill", "decode")
        moved = _grown(before, _prompt_tokens(pair["decode"]))
        assert moved == {"external_kv_transfer": prompt}
        assert _prompt_tokens(pair["prefill"])["local_compute"] >= prompt
        _, receipt, _ = await _asked(gateway, client, QUESTION + "And when?")
        assert receipt.prefill == "", "the second server has nearly all of it by now"
        await asyncio.to_thread(end_group, pair["prefill"].process)
        _, receipt, counts = await _asked(gateway, client, "Again. " + QUESTION)
        assert receipt.prefill == "" and [each.node for each in receipt.attempts] == ["prefill"]
        assert counts.output == 8 and counts.cached < counts.uncached
        assert text == await _alone(pair["decode"])


async def _asked(
    gateway: GatewayUnderTest, client: httpx2.AsyncClient, question: str
) -> tuple[str, Receipt, TokenCounts]:
    """What a client is answered, why from where, and what it is charged for."""
    answer = await client.post("/v1/chat/completions", json=_body(question), timeout=ANSWER_S_MAX)
    assert answer.status_code == 200, answer.text
    await gateway.at_rest()
    receipt = read_receipt(gateway.recorder.records[-1].receipt)
    counts = list(gateway.ledger.settled.values())[-1].counts
    return answer.json()["choices"][0]["message"]["content"], receipt, counts


async def _alone(server: VllmServer) -> str:
    """What a server says by itself."""
    body = {**_body(QUESTION), "model": server.model, "cache_salt": "another"}
    async with httpx2.AsyncClient() as client:
        answer = await client.post(
            f"{server.url}/chat/completions", json=body, timeout=ANSWER_S_MAX
        )
    return str(answer.json()["choices"][0]["message"]["content"])


def _body(question: str) -> dict[str, object]:
    messages = [{"role": "user", "content": question}]
    return {"model": MODEL, "messages": messages, "max_tokens": 8, "temperature": 0}


def _prompt_tokens(server: VllmServer) -> dict[str, int]:
    """Tokens of prompts by where a server has them from."""
    with urllib.request.urlopen(server.url.removesuffix("/v1") + "/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(
        r'^vllm:prompt_tokens_by_source_total\{.*source="(\w+)"\} (\S+)$', text, re.M
    )
    return {source: int(float(count)) for source, count in found}


def _grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {
        key: after[key] - before.get(key, 0) for key in after if after[key] > before.get(key, 0)
    }
