"""Grammars through the compact engine: real thread, the shipped model, outputs read back."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace
from tokenizers import Tokenizer

from inference.compact.grammar import compiler as grammars
from inference.compact.grammar.compiler import CompiledGrammar
from inference.compact.options import CompactOptions
from inference.contract.capabilities import Capability
from inference.contract.frames import Job, Output
from inference.contract.grammar import GRAMMAR_BYTES_MAX, Grammar
from inference.engines.compact import CompactEngine
from inference.errors import JobRefused
from tests.inference.compact.tiny import job_of, prompt_of, save_model
from tests.inference.engines.sink import Sink

SHIPPED = Path(__file__).parents[3] / "inference" / "assets" / "sluice-5m"
TOKENIZER = Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", "Rome", "Oslo"]},
        "nights": {"type": "integer", "minimum": 1, "maximum": 14},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 6}, "maxItems": 3},
    },
    "required": ["city", "nights"],
    "additionalProperties": False,
}
ROOM = 150


@dataclass
class Serving:
    """A started engine and what it says."""

    engine: CompactEngine
    sink: Sink

    async def texts(self, job: Job) -> list[str]:
        """The text of each choice, all of which must have ended by themselves."""
        outputs = await self.sink.finished(job.request, choices=job.sampling.n)
        choices = range(job.sampling.n)
        return [text_of([each for each in outputs if each.choice == n]) for n in choices]


@asynccontextmanager
async def started(**options: Any) -> AsyncIterator[Serving]:
    """One thread, since tests run beside each other."""
    wanted: dict[str, Any] = {"dtype": "float32", "device": "cpu", "kv_blocks": 64, "threads": 1}
    engine, sink = CompactEngine(SHIPPED, CompactOptions(**{**wanted, **options})), Sink()
    await engine.start(sink)
    try:
        yield Serving(engine, sink)
    finally:
        await engine.close()


@pytest.fixture
async def serving() -> AsyncIterator[Serving]:
    async with started() as made:
        yield made


def asked(grammar: Grammar, number: int = 1, **sampling: Any) -> Job:
    """A job of the shipped model under a grammar."""
    wanted = {"temperature": 1.0, "seed": number, "max_tokens": ROOM, "ignore_eos": False}
    job = job_of(TOKENIZER.encode("A city, please.").ids, number, **{**wanted, **sampling})
    return replace(job, model="sluice-5m", sampling=replace(job.sampling, grammar=grammar))


def schema(**keywords: Any) -> Grammar:
    return Grammar(kind="json_schema", source=json.dumps(keywords))


def text_of(outputs: list[Output]) -> str:
    assert outputs[-1].finish == "stop"
    return TOKENIZER.decode([token for output in outputs for token in output.tokens])


async def test_the_capability_is_declared(serving: Serving) -> None:
    assert Capability.GRAMMAR in serving.engine.facts.capabilities


@pytest.mark.parametrize("temperature", [0.0, 1.0, 5.0])
async def test_every_choice_validates(serving: Serving, temperature: float) -> None:
    for number in range(1, 3):
        serving.engine.submit(
            asked(schema(**SCHEMA), number, n=4, temperature=temperature, logprobs=2)
        )
    for number in range(1, 3):
        job = asked(schema(**SCHEMA), number, n=4)
        for text in await serving.texts(job):
            jsonschema.validate(json.loads(text), SCHEMA)


async def test_every_kind_among_free_requests(serving: Serving) -> None:
    kinds = {
        1: Grammar(kind="regex", source="[a-c]{4,8}!"),
        2: Grammar(kind="lark", source='start: "left" | "right"'),
        3: schema(type="array", items={"type": "boolean"}, minItems=2, maxItems=3),
    }
    free = replace(asked(kinds[1], 9, max_tokens=30), sampling=asked(kinds[1], 9).sampling)
    free = replace(free, sampling=replace(free.sampling, grammar=None, max_tokens=30))
    serving.engine.submit(free)
    for number, grammar in kinds.items():
        serving.engine.submit(asked(grammar, number))
    (short,) = await serving.texts(asked(kinds[1], 1))
    assert short[-1] == "!" and set(short[:-1]) <= set("abc") and 5 <= len(short) <= 9
    assert await serving.texts(asked(kinds[2], 2)) in (["left"], ["right"])
    (flags,) = await serving.texts(asked(kinds[3], 3))
    assert len(json.loads(flags)) in (2, 3)
    outputs = await serving.sink.finished(free.request)
    assert outputs[-1].finish in ("stop", "length")


async def test_the_same_seed_says_the_same_in_any_company(serving: Serving) -> None:
    serving.engine.submit(asked(schema(**SCHEMA), 1, seed=7))
    alone = await serving.texts(asked(schema(**SCHEMA), 1))
    for number in range(2, 6):
        serving.engine.submit(asked(schema(**SCHEMA), number, seed=7 if number == 4 else number))
    crowd = [await serving.texts(asked(schema(**SCHEMA), number)) for number in range(2, 6)]
    assert crowd[2] == alone and len({text for (text,) in crowd}) > 1


async def test_preemption_keeps_the_place_in_the_grammar() -> None:
    wanted = Grammar(kind="regex", source="[0-9]{60}")
    async with started(kv_blocks=8, block_size=16) as serving:
        for number in range(1, 4):
            serving.engine.submit(asked(wanted, number, max_tokens=80))
        found = [await serving.texts(asked(wanted, number)) for number in range(1, 4)]
        assert sum(step.preemptions for step in serving.sink.steps) > 0
    assert [len(text) for (text,) in found] == [60, 60, 60]


async def test_an_output_cut_by_its_length_says_so(serving: Serving) -> None:
    job = asked(schema(type="string", minLength=50), max_tokens=5)
    serving.engine.submit(job)
    outputs = await serving.sink.finished(job.request)
    assert outputs[-1].finish == "length" and outputs[-1].usage.completion_tokens == 5


async def test_a_bad_grammar_is_refused_and_others_go_on(serving: Serving) -> None:
    sink, job = serving.sink, asked(schema(type="array", uniqueItems=True))
    for _ in range(2):
        serving.engine.submit(job)
        await sink.until(lambda: job.request in sink.refused)
        refused = sink.refused.pop(job.request)
        assert refused.code == "bad_grammar" and "uniqueItems" in str(refused)
    good = asked(Grammar(kind="regex", source="ok"), 2)
    serving.engine.submit(good)
    assert await serving.texts(good) == ["ok"]
    assert sink.outputs[job.request] == []


async def test_cancel_while_the_grammar_is_compiled(serving: Serving) -> None:
    sink, job = serving.sink, asked(schema(**SCHEMA), n=2)
    serving.engine.submit(job)
    serving.engine.cancel(job.request)
    serving.engine.cancel(job.request)
    outputs = await sink.finished(job.request, choices=2)
    assert [(each.finish, each.tokens) for each in outputs] == [("cancelled", [])] * 2
    assert sink.steps[-1].kv_free_blocks == 64
    again = asked(schema(**SCHEMA), 2)
    serving.engine.submit(again)
    jsonschema.validate(json.loads((await serving.texts(again))[0]), SCHEMA)


async def test_who_waits_for_a_grammar_holds_up_nobody(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler's only thread is kept busy until the free request is done."""
    compiler, busy = serving.engine._grammars, threading.Event()
    assert compiler is not None
    compiler._queue._thread.submit(busy.wait)
    waiting, late = asked(Grammar(kind="regex", source="ok"), 1), asked(Grammar(kind="regex"), 2)
    free = asked(Grammar(kind="regex"), 3, max_tokens=3)
    free = replace(free, sampling=replace(free.sampling, grammar=None))
    serving.engine.submit(waiting)
    serving.engine.submit(free)
    await serving.sink.finished(free.request)
    assert serving.sink.outputs[waiting.request] == []
    monkeypatch.setattr(grammars, "COMPILE_S_MAX", 0.01)
    serving.engine.submit(late)
    await serving.sink.until(lambda: late.request in serving.sink.refused)
    # It has not been looked at, so it is not called bad.
    assert serving.sink.refused[late.request].code == "full"
    busy.set()
    assert await serving.texts(waiting) == ["ok"]


async def test_a_tenant_with_many_grammars_keeps_no_other_waiting_for_them(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, busy = serving.engine._grammars, threading.Event()
    assert compiler is not None
    build, begun = compiler._queue._build, list[str]()

    def noted(grammar: Grammar) -> CompiledGrammar | str:
        begun.append(grammar.source)
        return build(grammar)

    monkeypatch.setattr(compiler._queue, "_build", noted)
    compiler._queue._thread.submit(busy.wait)
    jobs = [asked(Grammar(kind="regex", source=text), ord(text)) for text in "abcz"]
    jobs[-1] = replace(jobs[-1], salt=b"of another organization")
    for job in jobs:
        serving.engine.submit(job)
    await asyncio.sleep(0)
    busy.set()
    assert [await serving.texts(job) for job in jobs] == [["a"], ["b"], ["c"], ["z"]]
    assert begun == ["a", "z", "b", "c"]


async def test_drafts_change_nothing() -> None:
    """A pattern that repeats itself is guessed well; rejected guesses are taken back."""
    wanted = Grammar(kind="regex", source="(red, blue, (green|grey), ){6}")
    said = []
    for speculate in ("off", "on"):
        async with started(speculate=speculate) as serving:
            serving.engine.submit(asked(wanted, temperature=0.0))
            said.append(await serving.texts(asked(wanted)))
    assert said[0] == said[1]
    assert sum(step.accepted for step in serving.sink.steps) > 0


async def test_close_while_a_grammar_is_compiled() -> None:
    job = asked(schema(**SCHEMA))
    async with started() as serving:
        serving.engine.submit(job)
    assert serving.sink.finishes(job.request) == ["cancelled"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"grammar": Grammar(kind="xml")}, "sampling.grammar.kind"),
        (
            {"grammar": Grammar(kind="regex", source="a" * (GRAMMAR_BYTES_MAX + 1))},
            "sampling.grammar.source",
        ),
        ({"ignore_eos": True}, "sampling.ignore_eos"),
    ],
)
async def test_what_no_engine_could_take_is_refused_by_field(
    serving: Serving, changes: dict[str, Any], field: str
) -> None:
    job = asked(Grammar(kind="regex", source="a"))
    with pytest.raises(JobRefused, match=field):
        serving.engine.submit(replace(job, sampling=replace(job.sampling, **changes)))


async def test_without_a_tokenizer_no_grammar_is_offered(tmp_path: Path) -> None:
    save_model(tmp_path)
    engine = CompactEngine(tmp_path, CompactOptions(dtype="float32", device="cpu", kv_blocks=4))
    assert Capability.GRAMMAR not in engine.facts.capabilities
    job = job_of(prompt_of(4), ignore_eos=False)
    job = replace(job, model=engine.facts.model)
    with pytest.raises(JobRefused, match=r"sampling\.grammar"):
        engine.submit(
            replace(job, sampling=replace(job.sampling, grammar=Grammar(kind="json_object")))
        )


LEAVES: tuple[dict[str, Any], ...] = (
    {"type": "integer", "minimum": -5, "maximum": 300},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "boolean"},
    {"enum": ["a", 1, None, {"k": [1, 2]}]},
    {"const": {"x": 1.5}},
    {"type": "string", "maxLength": 5},
    {"type": "string", "pattern": "[A-Z]{2}-[0-9]{1,3}"},
    {"type": "string", "format": "date"},
    {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 100},
    {"type": ["integer", "null"], "minimum": 1, "maximum": 99},
    {"$ref": "#/$defs/point"},
)
POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["x"],
    "additionalProperties": False,
}
NAMES = ("a", "b", 'c"\\', "é")
RANDOM_SCHEMAS = 12


def random_schema(chance: random.Random, depth: int = 3) -> dict[str, Any]:
    """Objects, arrays and alternatives over leaves."""
    shape = chance.choice(["leaf", "object", "array", "pair", "any"]) if depth else "leaf"
    inner = [random_schema(chance, depth - 1) for _ in range(2)] if shape != "leaf" else []
    match shape:
        case "object":
            fields = dict(zip(chance.sample(NAMES, 2), inner, strict=True))
            needed = list(fields)[: chance.randint(0, 2)]
            return {
                "type": "object", "properties": fields, "required": needed,
                "additionalProperties": False,
            }  # fmt: skip
        case "array":
            return {"type": "array", "items": inner[0], "minItems": 1, "maxItems": 2}
        case "pair":
            return {"type": "array", "prefixItems": inner, "items": False, "minItems": 2}
        case "any":
            return {"anyOf": inner}
    return chance.choice(LEAVES)


async def test_whatever_the_schema_what_stops_validates(serving: Serving) -> None:
    """The temperature is so high that the model has no say: the grammar alone must do it."""
    chance = random.Random(0)
    wanted = {
        number: {"$defs": {"point": POINT}, **random_schema(chance)}
        for number in range(1, RANDOM_SCHEMAS + 1)
    }
    for number, each in wanted.items():
        serving.engine.submit(asked(schema(**each), number, n=2, temperature=50.0))
    whole = 0
    for number, each in wanted.items():
        outputs = await serving.sink.finished(asked(schema(**each), number).request, choices=2)
        for choice in range(2):
            mine = [output for output in outputs if output.choice == choice]
            if mine[-1].finish == "stop":
                jsonschema.validate(json.loads(text_of(mine)), each)
                whole += 1
            else:
                assert mine[-1].finish == "length"
    assert whole > RANDOM_SCHEMAS
