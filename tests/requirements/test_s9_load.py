"""S9: bounded load on any OpenAI-compatible address, timed from planned starts, kept, compared."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controlplane.composed.demo import MODEL
from controlplane.insights.load import figures, report, workloads
from controlplane.insights.load.drive import BURST, RETRIES, LoadOutcome
from controlplane.insights.load.samples import LEFT, OK, LoadSample
from controlplane.insights.load.setup import CONSTANT, LoadSetup
from tests.support.product import Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.sluice_run import environment, manage
from tests.support.upstream import DONE, Exchange, HandUpstream, hand_upstream, text_chunk
from tests.support.upstream import usage_chunk as usage
from tests.support.waiting import wait_for

FIRST_S, GAP_S, TOKENS = 0.1, 0.03, 5
BEGAN_S = 1_000.0
Script = Callable[[Exchange, int], Awaitable[None]]


async def paced(exchange: Exchange, number: int) -> None:
    """Five tokens with known times before them, at least."""
    await exchange.begin()
    await asyncio.sleep(FIRST_S)
    for token in range(TOKENS):
        if token:
            await asyncio.sleep(GAP_S)
        await exchange.event(text_chunk("a "))
    await exchange.event(text_chunk("", finish="length"))
    await exchange.event(usage(1_600, TOKENS, cached=64))
    await exchange.event(DONE)
    await exchange.end()


async def at_once(exchange: Exchange, number: int) -> None:
    await exchange.answer(text_chunk("a"), usage(1_600, 1))


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[tuple[HandUpstream, list[dict[str, Any]]]]:
    """A server that answers each request by the script; the bodies that it was sent."""
    bodies: list[dict[str, Any]] = []

    async def answer(exchange: Exchange, number: int) -> None:
        with suppress(OSError):
            await script(exchange, number)

    async def serve(upstream: HandUpstream) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                exchange = await upstream.exchanges.get()
                bodies.append(exchange.body)
                group.create_task(answer(exchange, len(bodies) - 1))

    async with hand_upstream() as upstream:
        task = asyncio.create_task(serve(upstream))
        try:
            yield upstream, bodies
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def start(folder: Path, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *manage("load", *arguments),
        env=environment(folder, SLUICE_API_KEY="sk_load"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def load(folder: Path, *arguments: str, status: int = 0) -> str:
    """What the command prints."""
    process = await start(folder, *arguments)
    out, _ = await process.communicate()
    assert process.returncode == status, out.decode()
    return out.decode()


def kept(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "load" / f"{name}.json").read_bytes())
    return found


def sample(planned_s: float, first_s: float, gap_s: float, tokens: int) -> LoadSample:
    """An answer of so many tokens in as many events, by its planned start and its times."""
    planned_s += BEGAN_S
    first, last = planned_s + first_s, planned_s + first_s + gap_s * (tokens - 1)
    return LoadSample(
        "reference",
        planned_s,
        sent_s=planned_s + 0.01,
        first_s=first,
        last_s=last,
        prompt_tokens=100,
        cached_tokens=64,
        output_tokens=tokens,
        events=tokens,
        code=OK,
        gaps_s=array("d", [gap_s] * (tokens - 1)),
    )


SETUP = LoadSetup(url="http://127.0.0.1:1/v1", model="m")


def test_every_figure_of_known_times() -> None:
    samples = [sample(n, 0.1 * (n + 1), 0.02 * (n + 1), 11) for n in range(4)]
    left = LoadSample("reference", BEGAN_S, sent_s=BEGAN_S, first_s=BEGAN_S + 9, code=LEFT)
    lost = LoadSample("reference", BEGAN_S, sent_s=BEGAN_S, code="503 overloaded")
    outcome = LoadOutcome([*samples, left, lost], BEGAN_S, BEGAN_S + 8)
    record = figures.record_of(SETUP, outcome)
    assert (record["requests"], record["answered"]) == (6, 4)
    assert (record["output_tokens_s"], record["answers_s"]) == (44 / 8, 0.5)
    assert record["sent_late_p99_ms"] == pytest.approx(10, abs=0.01)
    row = record["kinds"]["reference"]
    assert row["answers"] == {"ok": 4, "left": 1, "503 overloaded": 1}
    assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) == (400, 256, 44)

    def told(name: str) -> list[float]:
        times = row["times_ms"][name]
        return [times[key] for key in ("count", "mean", "p50", "p95", "p99")]

    # As numpy.percentile gives them of 100, 200, 300, 400; 20, 40, 60, 80; 300, 600, 900, 1,200.
    assert told("ttft") == pytest.approx([4, 250, 250, 385, 397], abs=0.01)
    assert told("tpot") == pytest.approx([4, 50, 50, 77, 79.4], abs=0.01)
    assert told("itl") == pytest.approx([40, 50, 50, 80, 80], abs=0.01)
    assert told("total") == pytest.approx([4, 750, 750, 1155, 1191], abs=0.01)


def test_time_per_token_is_of_tokens_and_the_inter_token_latency_of_events() -> None:
    # Two events with eleven tokens, as with drafts: one gap of 100 ms, 10 ms for each token.
    both = sample(0, 0.5, 0.1, 2)
    both.output_tokens = 11
    times = figures.record_of(SETUP, LoadOutcome([both], BEGAN_S, BEGAN_S + 1))["kinds"][
        "reference"
    ]
    assert times["times_ms"]["itl"]["p50"] == pytest.approx(100)
    assert times["times_ms"]["tpot"]["p50"] == pytest.approx(10)


def test_open_loops_are_due_at_the_same_times_in_each_run() -> None:
    steady = msgspec.structs.replace(SETUP, rate=4.0, arrivals=CONSTANT, requests=3).starts_s()
    assert steady == [0, 0.25, 0.5]
    random = msgspec.structs.replace(SETUP, rate=4.0, requests=200, seconds=3_600.0)
    starts = random.starts_s()
    assert starts == random.starts_s() == sorted(starts)
    # The whole takes as long as its rate says, with gaps of every length.
    assert len(starts) == 200 and starts[-1] == pytest.approx(50)
    gaps = [after - before for before, after in pairwise(starts)]
    assert min(gaps) < 0.05 and max(gaps) > 0.75
    assert len(msgspec.structs.replace(random, seconds=10.0).starts_s()) == 40


def test_ratios_tell_their_spread() -> None:
    def run(rate: float, failed: int) -> dict[str, Any]:
        row = {"requests": 10, "answers": {"ok": 10 - failed}, "times_ms": {}}
        return {"output_tokens_s": rate, "answers_s": 1.0, "kinds": {"reference": row}}

    before = [run(rate, 0) for rate in (90.0, 100.0, 110.0)]
    after = [run(rate, 1) for rate in (140.0, 150.0, 180.0)]
    assert figures.compare(before, after) == {
        "output tokens/s": [100, 150, 1.5, 140 / 110, 2],
        "answers/s": [1, 1, 1, 1, 1],
        "reference failed %": [0, pytest.approx(10), inf, inf, inf],
    }
    text = report.ratio_table(figures.compare(before, after), 3, 3).text()
    assert text.count("within the spread") == 1 and text.count("from 0") == 3


async def test_a_closed_loop_is_timed_kept_compared_and_shown(tmp_path: Path) -> None:
    page = tmp_path / "load.html"
    async with scripted(paced) as (upstream, bodies):
        common = (
            "--url", upstream.url, "--model", "big", "--streams", "2", "--requests", "6",
            "--extra-body", '{"ignore_eos": true}',
        )  # fmt: skip
        out = await load(tmp_path, *common, "--label", "before", "--repeat", "2")
        await load(tmp_path, *common, "--label", "after", "--html", str(page))
    assert "closed loop of 2 streams" in out and "reference: ok" in out and "p99" in out
    assert "sk_load" not in out
    record = kept(tmp_path, "before-002")
    assert (record["requests"], record["answered"]) == (6, 6)
    row = record["kinds"]["reference"]
    assert (row["output_tokens"], row["events"], row["cached_tokens"]) == (30, 30, 6 * 64)
    times = {name: row["times_ms"][name] for name in figures.TIMES}
    assert {name: each["count"] for name, each in times.items()} == {
        "ttft": 6, "itl": 30, "tpot": 6, "total": 6,
    }  # fmt: skip
    decode_s = GAP_S * (TOKENS - 1)
    assert times["ttft"]["curve"][0] >= FIRST_S * 1e3
    assert times["total"]["curve"][0] >= (FIRST_S + decode_s) * 1e3
    assert times["total"]["mean"] - times["ttft"]["mean"] == pytest.approx(
        times["tpot"]["mean"] * (TOKENS - 1), abs=0.01
    )
    # Events are of one token, but for the last, empty one, which comes at once.
    assert times["itl"]["mean"] <= times["tpot"]["mean"] + 0.01
    assert record["output_tokens_s"] == pytest.approx(30 / record["seconds"], rel=0.01)
    # Three runs of six requests and one for calibration; every agent's prompt begins alike.
    asked = [body for body in bodies if body["max_tokens"] > 1]
    assert (len(bodies), len(asked)) == (21, 18) and all(body["ignore_eos"] for body in bodies)
    assert len({body["messages"][0]["content"] for body in asked}) == 1
    assert len({body["messages"][1]["content"] for body in asked}) == 6
    grown = [body["messages"] for body in asked if len(body["messages"]) > 2]
    assert grown and all(any(m[:-2] == b["messages"] for b in asked) for m in grown)
    text = page.read_text()
    assert "<svg" in text and "http://www" not in text and "<script" not in text
    out = await load(tmp_path, "compare", "before", "after", "--html", str(page))
    assert "medians of 2 and 1 runs" in out and "reference ttft p50 ms" in out
    assert page.read_text().count("<polyline") == 2 * len(figures.TIMES)


async def test_an_open_loop_counts_from_the_planned_start(tmp_path: Path) -> None:
    async with scripted(paced) as (upstream, _):
        out = await load(
            tmp_path, "--url", upstream.url, "--model", "big", "--rate", "20", "--arrivals",
            "constant", "--concurrency", "1", "--requests", "6", "--label", "open",
        )  # fmt: skip
    assert "latencies count from the planned start" in out
    times = kept(tmp_path, "open-001")["kinds"]["reference"]["times_ms"]
    # The sixth was due after 0.25 s, and could be sent when five had been answered.
    answer_s = FIRST_S + GAP_S * (TOKENS - 1)
    assert times["ttft"]["curve"][-1] >= (5 * answer_s + FIRST_S - 5 / 20) * 1e3


async def test_ctrl_c_prints_what_it_has(tmp_path: Path) -> None:
    stuck = asyncio.Event()

    async def script(exchange: Exchange, number: int) -> None:
        if number < 3:
            await at_once(exchange, number)
        else:
            stuck.set()
            await exchange.left()

    async with scripted(script) as (upstream, _):
        arguments = ("--url", upstream.url, "--model", "big", "--streams", "1", "--label", "cut")
        process = await start(tmp_path, *arguments)
        await stuck.wait()
        process.send_signal(signal.SIGINT)
        out, _ = await process.communicate()
    assert process.returncode == 0
    assert "Stopped before its end." in out.decode() and "reference ttft" in out.decode()
    answers = kept(tmp_path, "cut-001")["kinds"]["reference"]["answers"]
    assert answers == {"ok": 2, "unfinished": 1}


async def test_failures_are_told_by_their_code(tmp_path: Path) -> None:
    async def script(exchange: Exchange, number: int) -> None:
        if number == 1:
            await exchange.refuse(
                429, {"error": {"code": "rate_limit_exceeded", "message": "Slow."}}
            )
        elif number == 2:
            await exchange.refuse(502, "<html>")
        elif number == 3:
            await exchange.begin()
            await exchange.event({"error": {"code": "node_lost"}})
            await exchange.end()
        elif number == 4:
            await exchange.begin()
            await exchange.event(text_chunk("a"))
            await exchange.end()
        elif number == 5:
            exchange.writer.transport.abort()
        else:
            await at_once(exchange, number)

    async with scripted(script) as (upstream, _):
        arguments = ("--url", upstream.url, "--model", "big", "--streams", "1", "--requests", "6")
        out = await load(tmp_path, *arguments, "--label", "bad")
    answers = kept(tmp_path, "bad-001")["kinds"]["reference"]["answers"]
    lost = [code for code in answers if code.startswith("connection: ")]
    assert len(lost) == 1 and set(answers) - set(lost) == {
        "429 rate_limit_exceeded", "502", "stream: node_lost", "stream: cut off", "ok",
    }  # fmt: skip
    told = next(line for line in out.splitlines() if "429 rate_limit_exceeded" in line)
    assert told.endswith("Slow.")


async def test_a_slow_tool_answers_and_a_refusal_is_tried_again_at_once(tmp_path: Path) -> None:
    async def script(exchange: Exchange, number: int) -> None:
        if number and "tools" not in exchange.body:
            await exchange.refuse(503, {"error": {"code": "overloaded"}})
        else:
            await at_once(exchange, number)

    async with scripted(script) as (upstream, bodies):
        await load(
            tmp_path, "--url", upstream.url, "--model", "big", "--streams", "4", "--requests", "40",
            "--mix", "slow-tools,retries", "--label", "odd",
        )  # fmt: skip
    rows = kept(tmp_path, "odd-001")["kinds"]
    assert rows["retries"]["answers"] == {"503 overloaded": rows["retries"]["requests"]}
    assert rows["slow-tools"]["answers"] == {"ok": rows["slow-tools"]["requests"]}
    with_tools = [body["messages"] for body in bodies if "tools" in body]
    answered = [messages for messages in with_tools if messages[-1]["role"] == "tool"]
    assert answered and all(messages[:-2] in with_tools for messages in answered)
    # One that failed is repeated as it was; nobody else sends the same twice.
    asked = [json.dumps(body["messages"]) for body in bodies]
    again = Counter(asked).most_common(1)
    assert again[0][1] == 1 + RETRIES


async def test_progress_is_one_line_on_a_terminal(tmp_path: Path) -> None:
    master, slave = os.openpty()
    async with scripted(paced) as (upstream, _):
        process = await asyncio.create_subprocess_exec(
            *manage("load", "--url", upstream.url, "--model", "big", "--requests", "8"),
            env=environment(tmp_path),
            stdout=asyncio.subprocess.PIPE,
            stderr=slave,
        )
        os.close(slave)
        await process.communicate()
    told = os.read(master, 65_536).decode()
    os.close(master)
    assert "under way" in told and told.count("\r\x1b[K") == told.count(" sent, ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--url", "http://192.0.2.1:8000", "--model", "m"), "--url: 192.0.2.1 is not this"),
        (("--url", "http://localhost.example", "--model", "m"), "--allow-remote"),
        (("--url", "http://me@127.0.0.1", "--model", "m"), "--url: must be like"),
        (("--url", "http://127.0.0.1:9"), "--model: must name"),
        (("--url", "http://127.0.0.1:9", "--model", "m", "--requests", "50001"), "--requests: "),
        (("--url", "http://127.0.0.1:9", "--model", "m", "--rate", "nan"), "--rate: must be"),
        (("--url", "http://127.0.0.1:9", "--model", "m", "--mix", "tidy"), "--mix: tidy is not"),
        (
            ("--url", "http://127.0.0.1:9", "--model", "m", "--extra-body", "[]"),
            "--extra-body: must",
        ),
        (("--url", "http://127.0.0.1:9", "--model", "m", "--label", "../x"), "--label: must be"),
        (("--url", "http://127.0.0.1:9", "--model", "m"), "did not answer a first request"),
        (("compare", "one", "other"), "one: no runs of this label"),
    ],
)
async def test_what_is_refused(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    process = await start(tmp_path, *arguments)
    out, _ = await process.communicate()
    assert process.returncode and told in out.decode() and "Traceback" not in out.decode()


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    """The shipped model's limits and templates, echoed: what is refused, it refuses as ever."""
    with running_product(servers, Plan(tokens_per_s=200.0)) as product:
        yield product


def test_the_unhappy_mix_is_counted_apart(product: Product, tmp_path: Path) -> None:
    command = manage(
        "load", "--url", product.urls[0], "--model", MODEL.name, "--mix", "--streams", "8",
        "--requests", "120", "--output-tokens", "40", "--label", "mix",
    )  # fmt: skip
    env = environment(tmp_path, SLUICE_API_KEY=product.key)
    ran = subprocess.run(command, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "tools' is larger than 65536 bytes" in ran.stdout
    rows = kept(tmp_path, "mix-001")["kinds"]
    assert set(rows) == {workloads.PLAIN, *workloads.UNHAPPY}
    answers = {kind: set(row["answers"]) for kind, row in rows.items()}
    assert answers.pop(workloads.BEYOND_WINDOW) == {"400 context_length_exceeded"}
    assert answers.pop(workloads.DISCONNECT) == {LEFT}
    # Nodes that echo take no tools; those of a giant are larger than anybody's.
    assert answers.pop(workloads.SLOW_TOOLS) == {"400 unsupported_parameter"}
    assert answers.pop(workloads.GIANT_SCHEMAS) == {"400 invalid_request_error"}
    assert set().union(*answers.values()) == {OK}
    assert rows[workloads.BURST]["requests"] >= BURST
    wait_for(lambda: product.under_way() == 0, "nodes without work")
