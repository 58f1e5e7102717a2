"""The Batches port on PostgreSQL: files, lines taken once, and what a dead gateway leaves."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controlplane.bridge.batches.store import PostgresBatches
from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.gateway.ports import LedgerAway
from controlplane.gateway.ports_contents import BatchQuestion
from controlplane.kernel.ids import new_request_id, public_id
from tests.support.money import ORG_A, add_budget, dsn, make_hold, rows, settlement_of
from tests.support.waiting import until

PROJECT = uuid.uuid4().hex
ENDPOINT = "/v1/completions"
LIVES, DEAD = "a" * 32, "d" * 32
TURN = {"rows_max": 100, "lines_max": 50, "errors_max": 3, "kept_s": 3600}


class Asking:
    """Questions of one gateway in one project, answered as Python has them."""

    def __init__(self, store: PostgresBatches) -> None:
        self.store = store
        self.me = LIVES

    async def __call__(self, question: BatchQuestion, **facts: Any) -> Any:
        try:
            told = await self.store.ask(question, **{"project": PROJECT, "me": self.me} | facts)
        except LedgerAway as error:
            assert error.__cause__ is not None
            raise error.__cause__ from error
        return json.loads(told)

    async def file(self, *parts: str) -> str:
        id = public_id("file", new_request_id().hex())
        assert await self("upload", id=id, organization=ORG_A, files_max=9, bytes_max=1 << 20)
        for number, part in enumerate(parts, start=1):
            await self("part", id=id, number=number, data=part)
        size = sum(map(len, parts))
        await self("uploaded", id=id, filename="a.jsonl", bytes=size, kept_s=60)
        return id

    async def batch(self, file: str) -> dict[str, Any]:
        facts = {"key_id": "K", "key_label": "k", "endpoint": ENDPOINT, "open_max": 9}
        id = public_id("batch", new_request_id().hex())
        made: dict[str, Any] = await self("create", id=id, file=file, metadata=None, **facts)
        return made

    async def turn(self, *running: dict[str, Any]) -> dict[str, Any]:
        ids = {kind: public_id("file", new_request_id().hex()) for kind in ("output", "error")}
        requests = [line["request"] for line in running]
        told: dict[str, Any] = await self("turn", running=requests, **TURN, **ids)
        return told

    async def read(self) -> None:
        while (await self.turn())["reading"]:
            pass

    async def claim(self, slots: int = 9) -> list[dict[str, Any]]:
        fresh = [str(uuid.UUID(bytes=new_request_id())) for _ in range(slots)]
        asked = [{"model": "m", "slots": slots}]
        told: list[dict[str, Any]] = await self("claim", slots=asked, requests=fresh)
        return sorted(told, key=lambda line: line["number"])

    async def done(self, line: dict[str, Any], **facts: Any) -> Any:
        named = {name: line[name] for name in ("batch", "number", "request")}
        return await self("done", **named, **facts)

    async def shown(self, batch: dict[str, Any]) -> dict[str, Any]:
        (found,) = await self("list", id=batch["id"], limit=1)
        return dict(found)


def line(name: str, **changes: Any) -> str:
    body = {"model": "m", "prompt": "x"}
    made = {"custom_id": name, "method": "POST", "url": ENDPOINT, "body": body}
    return json.dumps(made | changes) + "\n"


@pytest.fixture
async def asking(database: str) -> AsyncIterator[Asking]:
    made = PostgresBatches(dsn())
    made.start()
    await until(lambda: made._connection is not None)
    yield Asking(made)
    await made.close()


@pytest.fixture
async def ledger(database: str) -> AsyncIterator[PostgresLedger]:
    made = PostgresLedger(dsn())
    made.start()
    await until(lambda: not made.away)
    add_budget(ORG_A, 10_000, scope="organization")
    yield made
    await made.close()


async def test_a_file_is_read_part_by_part_and_its_errors_are_named_by_line(asking: Asking) -> None:
    other = line("c", url="/v1/embeddings")
    file = await asking.file(line("a") + "\n" + line("b"), "{broken\n" + line("a"), other)
    assert (await asking("read", id=file, after=2)) == {"upto": 3, "data": other}
    assert (await asking("read", id=file, after=3)) is None
    batch = await asking.batch(file)
    assert batch["status"] == "validating"
    await asking.read()
    batch = await asking.shown(batch)
    assert batch["status"] == "failed"
    assert [(each["line"], each["code"]) for each in batch["errors"]["data"]] == [
        (4, "invalid_json_line"),
        (5, "duplicate_custom_id"),
        (6, "invalid_url"),
    ]
    empty = await asking.batch(await asking.file("\n \n"))
    await asking.read()
    (error,) = (await asking.shown(empty))["errors"]["data"]
    assert error["code"] == "empty_file"


async def test_each_line_is_taken_once_and_answered_once(asking: Asking) -> None:
    batch = await asking.batch(await asking.file(line("a") + line("b", body={"model": "m"})))
    await asking.read()
    assert (await asking.turn())["models"] == ["m"]
    first, second = await asking.claim()
    assert (first["custom_id"], first["tries"], first["key_id"]) == ("a", 1, "K")
    assert json.loads(first["body"]) == {"model": "m", "prompt": "x"}
    assert await asking.claim() == []
    assert await asking.done(first, ok=True, result="{}")
    assert await asking.done(first, ok=True, result="{}") is None
    await asking.done(second, after_s=0)
    (again,) = await asking.claim()
    assert (again["tries"], again["request"] == second["request"]) == (2, False)
    assert await asking.done(second, ok=True, result="{}") is None
    assert await asking.done(again, ok=False, result='{"e": 1}')
    await asking.turn()
    batch = await asking.shown(batch)
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
    assert (await asking("read", id=batch["output_file_id"], after=0))["data"] == "{}\n"
    found = await asking("files", id=batch["error_file_id"], limit=1)
    assert (found[0]["bytes"], found[0]["purpose"]) == (9, "batch_output")
    assert await asking("forget", id=batch["output_file_id"], rows_max=1)
    assert await asking("read", id=batch["output_file_id"], after=0) is None


async def test_what_a_dead_gateway_held_is_released_before_its_line_runs_again(
    asking: Asking, ledger: PostgresLedger
) -> None:
    await asking.batch(await asking.file(line("a") + line("b") + line("c")))
    await asking.read()
    asking.me = DEAD
    lines = await asking.claim()
    requests = [uuid.UUID(each["request"]).bytes for each in lines]
    held, charged = (make_hold(100, ORG_A, request=request) for request in requests[:2])
    await ledger.hold(held)
    await ledger.hold(charged)
    await ledger.settle(settlement_of(charged, 60))
    asking.me = LIVES
    again = await asking.claim()
    same = [old["request"] == new["request"] for old, new in zip(lines, again, strict=True)]
    # What was charged is not charged again; what was held is charged by its new request alone.
    assert same == [False, True, False]
    assert [line["charged"] for line in again] == same
    await ledger.settle(settlement_of(held, 60))
    of = uuid.UUID(bytes=held.request)
    kinds = rows("SELECT kind FROM transfers WHERE request = %s ORDER BY slot", of)
    assert [kind for (kind,) in kinds] == ["hold", "release"]
    assert rows("SELECT held, posted FROM budgets") == [(0, 60)]


async def test_a_claim_that_was_never_heard_of_is_anybodys(asking: Asking) -> None:
    await asking.batch(await asking.file(line("a") + line("b")))
    await asking.read()
    heard, unheard = await asking.claim()
    await asking.turn(heard)
    (again,) = await asking.claim()
    assert (again["number"], again["tries"]) == (unheard["number"], 2)
    assert again["request"] != unheard["request"]


async def test_a_batch_that_ends_early_says_so_of_every_line(asking: Asking) -> None:
    batch = await asking.batch(await asking.file(line("a") + line("b")))
    await asking.read()
    (running,) = await asking.claim(1)
    rows(f"INSERT INTO gateways VALUES ('{LIVES}', '', now(), now(), 1)")
    (told,) = await asking("list", id=batch["id"], limit=1, cancel=True)
    assert told["status"] == "cancelling"
    assert await asking.claim() == []
    await asking.turn(running)
    # What is running ends first.
    assert (await asking.shown(batch))["status"] == "cancelling"
    await asking.done(running, ok=True, result="{}")
    await asking.turn()
    batch = await asking.shown(batch)
    assert batch["status"] == "cancelled"
    assert batch["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
