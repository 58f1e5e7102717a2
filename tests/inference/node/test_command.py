"""The node command: its table of engines, `--check`, and the remote engine as a process."""

from __future__ import annotations

import asyncio
import os
import pkgutil
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from inference.__main__ import parser
from inference.engines.table import ENGINE_OPTIONS, ENGINES
from tests.support.fleet import (
    CREDENTIAL,
    MODEL,
    NODE,
    WAIT_S,
    World,
    fleet_server,
    make_job,
    make_model,
    outputs_of,
)
from tests.support.upstream import HandUpstream, hand_upstream, text_chunk, usage_chunk
from tests.support.waiting import until

KEY = "sk-of-the-server"
SERVER = ("--engine", "remote", "--url", "http://h")
NAMED = ("--model-name", "m")
SECRETS = {"SLUICE_NODE_CREDENTIAL": CREDENTIAL, "SLUICE_UPSTREAM_KEY": KEY}


async def start(*arguments: str, **environment: str) -> Process:
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "inference", *arguments,
        stdout=PIPE, stderr=PIPE, env={**env, **environment},
    )  # fmt: skip


async def outcome(process: Process) -> tuple[int, str, str]:
    out, err = await asyncio.wait_for(process.communicate(), 3 * WAIT_S)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
async def upstream() -> AsyncIterator[HandUpstream]:
    async with hand_upstream() as server:
        server.listed = [{"id": "big", "max_model_len": 512}]
        yield server


def remote(upstream: HandUpstream, *more: str) -> tuple[str, ...]:
    names = ("--model-name", MODEL, "--upstream-model", "big")
    return ("--engine", "remote", "--url", upstream.url, *names, *more)


def node(url: str) -> tuple[str, ...]:
    return ("--gateway", url, "--name", NODE)


@pytest.mark.parametrize("name", ENGINES)
def test_every_option_of_an_engine_is_a_field_of_its_options(name: str) -> None:
    entry = ENGINES[name]
    options: Any = pkgutil.resolve_name(entry.options)
    known = {field.name for field in fields(options)}
    offered = {option.field for option in ENGINE_OPTIONS if name in option.engines}
    assert offered <= known
    assert entry.credits_option in known


def test_help_names_every_engine_and_option_once() -> None:
    text = parser().format_help()
    listing = text[text.index("\noptions:") :]
    for option in ENGINE_OPTIONS:
        assert len(re.findall(rf"^  {option.flag} ", listing, re.MULTILINE)) == 1
    for name, entry in ENGINES.items():
        assert f"{name}: {entry.about.split()[0]}" in text


async def test_check_says_what_a_model_is_and_asks_no_gateway(tmp_path: Path) -> None:
    model = make_model(tmp_path)
    process = await start("--check", "--engine", "echo", "--model", str(model))
    status, out, _ = await outcome(process)
    assert status == 0
    facts = dict(line.split(": ", 1) for line in out.splitlines())
    assert (facts["model"], facts["engine"], facts["vocab_size"]) == (MODEL, "echo", "256")
    assert float(facts["probe_ms"]) >= 0
    assert facts["chat_template"] == "renders, without tools"


async def test_check_of_a_bad_model_is_one_line_and_status_1(tmp_path: Path) -> None:
    model = make_model(tmp_path)
    (model / "config.json").write_text("{")
    status, out, err = await outcome(await start("--check", "--model", str(model)))
    assert (status, out) == (1, "")
    assert "config.json" in err and err.count("\n") == 1


async def test_check_of_a_template_that_is_none_names_it(tmp_path: Path) -> None:
    model = make_model(tmp_path)
    (model / "chat_template.jinja").write_text("{% for m in messages %}")
    status, out, err = await outcome(
        await start("--check", "--engine", "echo", "--model", str(model))
    )
    assert (status, out) == (1, "")
    assert "chat_template: " in err and err.count("\n") == 1


async def test_check_of_a_server_keeps_its_key_to_itself(upstream: HandUpstream) -> None:
    process = await start("--check", *remote(upstream), SLUICE_UPSTREAM_KEY=KEY)
    exchange = await upstream.next()
    assert exchange.headers["authorization"] == f"Bearer {KEY}"
    await exchange.answer(text_chunk("1", finish="length"), usage_chunk(9, 1))
    status, out, err = await outcome(process)
    assert status == 0
    assert "context_window: 512" in out and "tokenizer: the server's own" in out
    assert KEY not in out + err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((*SERVER, *NAMED, "--kv-events", "http://h"), "--kv-events"),
        (("--engine", "remote", *NAMED), "--url"),
        (SERVER, "--model-name"),
        ((*SERVER, *NAMED, "--threads", "1"), "--threads"),
        ((*SERVER, *NAMED, "--credits", "0"), "--credits"),
        (("--engine", "compact"), "--model"),
        (("--engine", "compact", "--model", "x", "--url", "http://h"), "--url"),
        (("--engine", "vllm", "--model", "x", "--vllm-args", "--port=1"), "--vllm-args: --port"),
    ],
)
async def test_a_wrong_option_is_named(arguments: tuple[str, ...], named: str) -> None:
    status, _, err = await outcome(await start("--check", *arguments))
    assert status == 2
    assert named in err


async def test_without_gateway_or_credential_it_says_what_is_missing(tmp_path: Path) -> None:
    model = ("--engine", "echo", "--model", str(make_model(tmp_path)))
    status, _, err = await outcome(await start(*model, **SECRETS))
    assert status == 2 and "--gateway" in err
    status, _, err = await outcome(await start(*model, *node("ws://127.0.0.1:1")))
    assert status == 2 and "SLUICE_NODE_CREDENTIAL" in err


@pytest.mark.parametrize("answer", [401, 403])
async def test_a_key_that_the_server_refuses_ends_the_start(
    upstream: HandUpstream, answer: int
) -> None:
    upstream.list_status = answer
    process = await start(*remote(upstream), *node("ws://127.0.0.1:1"), **SECRETS)
    status, out, err = await outcome(process)
    assert status == 1
    assert "SLUICE_UPSTREAM_KEY" in err and str(answer) in err
    assert KEY not in out + err


async def test_a_server_that_refuses_one_token_ends_the_start(upstream: HandUpstream) -> None:
    process = await start(*remote(upstream), *node("ws://127.0.0.1:1"), **SECRETS)
    await (await upstream.next()).refuse(403, {"error": {"message": "not your region"}})
    status, _, err = await outcome(process)
    assert status == 1
    assert "probe" in err and "HTTP 403" in err


async def test_a_remote_node_serves_and_drains(upstream: HandUpstream) -> None:
    world = World()
    async with fleet_server(world) as server:
        process = await start(*remote(upstream), *node(server.url), **SECRETS)
        await (await upstream.next()).answer(text_chunk("1", finish="length"), usage_chunk(9, 1))
        await until(lambda: world.fleet.candidates(MODEL))
        (link,) = world.fleet.candidates(MODEL)
        assert link.hello.models[0].digest == ""
        job = make_job(prompt="", request_json=b'{"prompt":"a canary prompt"}')
        stream = world.fleet.dispatch(link, job)
        exchange = await upstream.next()
        await exchange.begin()
        await exchange.event(text_chunk("Hel"))
        await stream.batch()
        process.send_signal(signal.SIGTERM)
        await until(lambda: not link.takes_jobs)
        await exchange.event(text_chunk("lo", finish="stop"))
        await exchange.event(usage_chunk(4, 2))
        await exchange.event("[DONE]")
        outputs = await outputs_of(stream)
        assert (outputs[-1].finish, outputs[-1].usage.completion_tokens) == ("stop", 2)
        world.fleet.acknowledge(link, job.request)
        status, out, err = await outcome(process)
    assert status == 0
    assert "draining" in err
    assert not any(secret in out + err for secret in (*SECRETS.values(), "canary"))
