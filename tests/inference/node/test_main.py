"""`python -m inference` as a process: help, wrong options, a bad model, SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from inference.node.options import BadOption, NodeOptions, gateway_url
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
from tests.support.waiting import until


async def start(*arguments: str, credential: str = CREDENTIAL) -> Process:
    env = {name: value for name, value in os.environ.items() if name != "SLUICE_NODE_CREDENTIAL"}
    if credential:
        env["SLUICE_NODE_CREDENTIAL"] = credential
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "inference", *arguments, stdout=PIPE, stderr=PIPE, env=env
    )


async def outcome(process: Process) -> tuple[int, str]:
    out, err = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert process.returncode is not None
    return process.returncode, (out + err).decode()


def echo(url: str, model: Path) -> tuple[str, ...]:
    return ("--gateway", url, "--name", NODE, "--engine", "echo", "--model", str(model))


async def test_help_says_how_to_start() -> None:
    status, text = await outcome(await start("--help"))
    assert status == 0
    for word in ("--gateway", "--model", "--credits", "SLUICE_NODE_CREDENTIAL", "exit status"):
        assert word in text


async def test_a_model_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    process = await start(*echo("ws://127.0.0.1:1", tmp_path / "nowhere"))
    status, text = await outcome(process)
    assert status == 1
    assert text.count("\n") == 1
    assert "cannot be served" in text and "config.json" in text


@pytest.mark.parametrize(
    ("extra", "credential", "named"),
    [
        ((), "", "SLUICE_NODE_CREDENTIAL"),
        ((), "secret-without-prefix", "SLUICE_NODE_CREDENTIAL"),
        (("--gateway", "http://127.0.0.1"), CREDENTIAL, "--gateway"),
        (("--gateway", "ws://user:pw@host"), CREDENTIAL, "--gateway"),
        (("--threads", "2"), CREDENTIAL, "--threads"),
        (("--credits", "0"), CREDENTIAL, "--credits"),
        (("--pool", ""), CREDENTIAL, "--pool"),
        (("--drain-deadline", "-1"), CREDENTIAL, "--drain-deadline"),
    ],
)
async def test_a_wrong_option_is_named(
    tmp_path: Path, extra: tuple[str, ...], credential: str, named: str
) -> None:
    model = make_model(tmp_path)
    process = await start(*echo("ws://127.0.0.1:1", model), *extra, credential=credential)
    status, text = await outcome(process)
    assert status == 2
    assert named in text
    assert "pw@" not in text and "without-prefix" not in text


async def test_sigterm_finishes_running_jobs_and_exits_cleanly(tmp_path: Path) -> None:
    world = World()
    model = make_model(tmp_path)
    async with fleet_server(world) as server:
        process = await start(*echo(server.url, model), "--tokens-per-s", "40")
        await until(lambda: world.fleet.candidates(MODEL))
        link = world.fleet.candidates(MODEL)[0]
        job = make_job(max_tokens=20, prompt="a canary prompt")
        stream = world.fleet.dispatch(link, job)
        await stream.batch()
        process.send_signal(signal.SIGTERM)
        outputs = await outputs_of(stream)
        assert outputs[-1].finish == "length"
        world.fleet.acknowledge(link, job.request)
        status, text = await outcome(process)
    assert status == 0
    assert "draining" in text and "probe_ms" in text
    assert CREDENTIAL not in text and "canary" not in text


def test_gateway_urls_get_the_fleet_path() -> None:
    assert gateway_url("ws://host:1") == "ws://host:1/fleet"
    assert gateway_url("wss://host/") == "wss://host/fleet"
    assert gateway_url("wss://host/own") == "wss://host/own"
    with pytest.raises(BadOption):
        gateway_url("ws:///nohost")


def test_the_credential_is_not_shown() -> None:
    options = NodeOptions(gateways=("ws://h/fleet",), name=NODE, credential=CREDENTIAL)
    assert CREDENTIAL not in repr(options)
