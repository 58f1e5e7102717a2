"""An engine for recorded requests: each prompt says itself what the answer is, step by step.

What a prompt says stands in it as base64, so that no tokenizer and no JSON around it changes it. A
prompt that says nothing is repeated, as by the echo engine. Nothing depends on time: a step that
waits is made when the client has told that it read the one before.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
from tokenizers import Tokenizer

from inference.contract.blocks import HASH_BYTES, split_hashes
from inference.contract.capabilities import Capability
from inference.contract.frames import Job, KvEvents, Output, Step, Timing, Usage
from inference.contract.parts import TokenLogprob, ToolCallDelta, Vectors
from inference.engines.admission import check_job, check_text_job
from inference.engines.base import EngineEvents, EngineFacts
from inference.errors import JobRefused

Mode = Literal["tokens", "text", "vectors"]
BLOCK_SIZE = 32
KV_BLOCKS = 1 << 16
CREDITS = 64
CONTEXT_WINDOW = 4096
DIMENSIONS = (8, 4)
SCRIPT = re.compile(r"@@([A-Za-z0-9_=-]+)@@")
# It has no other node to work with, and no server that it could ask.
NEVER = {Capability.HANDS_OVER, Capability.TOKENIZES}
ALL_BUT = {
    "tokens": {Capability.TEXT, Capability.EMBEDDINGS},
    "text": {
        Capability.TOKENS, Capability.EMBEDDINGS, Capability.STOP_TOKENS, Capability.PREFIX_CACHE,
        Capability.KV_EVENTS, Capability.SALT,
    },
    "vectors": set(Capability) - {Capability.EMBEDDINGS, Capability.CANCEL, Capability.DEADLINE},
}  # fmt: skip
TIMING = Timing(queue_us=10, prefill_us=100, decode_us=100, held_us=300)


def scripted(**script: Any) -> str:
    """What a prompt holds for `Script.find`."""
    return f"@@{base64.urlsafe_b64encode(json.dumps(script).encode()).decode()}@@"


@dataclass
class Script:
    """What is to be answered; `say` are steps, each a text, token ids, or parts by their names.

    With `case` a step after the first waits until the client has read so many pieces of that case.
    """

    say: list[Any] = field(default_factory=list)
    choices: list[list[Any]] | None = None
    finish: str = "stop"
    case: str = ""
    hang: bool = False
    refuse: tuple[str, str] | None = None
    cached: int | None = None
    usage: dict[str, Any] | None = None

    @staticmethod
    def find(text: str) -> Script | None:
        """The last of a prompt."""
        found = SCRIPT.findall(text)
        return Script(**json.loads(base64.urlsafe_b64decode(found[-1]))) if found else None

    def steps(self, choice: int) -> list[Any]:
        """Of a choice, at least one."""
        if self.choices is None:
            return self.say or [""]
        return self.choices[choice % len(self.choices)]


class Pieces:
    """How many pieces of which case the client has read."""

    def __init__(self) -> None:
        self._read: dict[str, int] = {}
        self._news = asyncio.Event()

    def take(self, case: str, count: int) -> None:
        """The client has read so many."""
        self._read[case] = max(count, self._read.get(case, 0))
        self._news.set()

    async def until(self, case: str, count: int) -> None:
        """Wait for so many."""
        while self._read.get(case, 0) < count:
            self._news.clear()
            await self._news.wait()


class ScriptedEngine:
    """Implements `Engine` with every capability of its mode; `note` is given each job."""

    def __init__(
        self, folder: Path, name: str, mode: Mode, *, pieces: Pieces, note: Callable[[Job], None]
    ) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._mode = mode
        self._pieces = pieces
        self._note = note
        self._vocabulary = int(json.loads((folder / "config.json").read_text())["vocab_size"])
        self._blocks: dict[bytes, None] = {}
        self._kv_number = 0
        self._running: dict[bytes, asyncio.Task[None]] = {}
        self._events: EngineEvents | None = None
        self._facts = EngineFacts(
            engine="scripted",
            device="none",
            dtype="none",
            model=name,
            context_window=CONTEXT_WINDOW,
            vocab_size=0 if mode == "text" else self._vocabulary,
            block_size=BLOCK_SIZE,
            kv_blocks=KV_BLOCKS,
            credits=CREDITS,
            capabilities=tuple(each for each in Capability if each not in ALL_BUT[mode] | NEVER),
            dimensions=DIMENSIONS if mode == "vectors" else (),
        )

    @property
    def facts(self) -> EngineFacts:
        """What it declares."""
        return self._facts

    async def start(self, events: EngineEvents) -> None:
        """Nothing is loaded."""
        self._events = events

    def submit(self, job: Job) -> None:
        """Raises `JobRefused`, also where the prompt says so."""
        if self._mode == "text":
            check_text_job(job, self._facts)
        elif self._mode == "tokens":
            check_job(job, self._facts)
        script = None if self._mode == "vectors" else Script.find(self._prompt(job))
        self._note(job)
        if script is not None and script.refuse:
            raise JobRefused(*script.refuse)
        task = asyncio.get_running_loop().create_task(self._answer(job, script))
        self._running[job.request] = task
        task.add_done_callback(lambda _: self._running.pop(job.request, None))

    def cancel(self, request: bytes) -> None:
        """The task says how far it came."""
        if (task := self._running.get(request)) is not None:
            task.cancel()

    def kv_snapshot(self) -> KvEvents:
        """All blocks that were ever sent."""
        stored = b"".join(self._blocks)
        return KvEvents(seq=self._kv_number, stored=stored, removed=b"", snapshot=True)

    def computing(self) -> None:
        """Its steps take no time."""

    async def close(self) -> None:
        """End what runs."""
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _prompt(self, job: Job) -> str:
        if self._mode == "text":
            return job.request_json.decode()
        return self._tokenizer.decode(job.tokens, skip_special_tokens=False)

    async def _answer(self, job: Job, script: Script | None) -> None:
        telling = _Telling(job, self._cached(job, script))
        try:
            # Taken before it is answered, as by any engine.
            await asyncio.sleep(0)
            if self._mode == "vectors":
                self._step([telling.vectors()], ended=True)
                return
            for number, outputs in enumerate(self._steps(job, script, telling)):
                if number and script is not None and script.case:
                    await self._pieces.until(script.case, number)
                self._step(outputs, ended=not telling.open)
            if script is not None and script.hang:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self._step([telling.end(choice) for choice in telling.open], ended=True)

    def _cached(self, job: Job, script: Script | None) -> int:
        """Tokens of the prompt that were sent before; what is new is told at once."""
        if self._mode != "tokens":
            return (script and script.cached) or 0
        hashes = split_hashes(job.hashes)
        known = 0
        while known < len(hashes) and hashes[known] in self._blocks:
            known += 1
        new = [each for each in hashes if each not in self._blocks]
        self._blocks |= dict.fromkeys(new)
        if new and self._events is not None:
            self._kv_number += 1
            self._events.on_kv(KvEvents(seq=self._kv_number, stored=b"".join(new), removed=b""))
        assert all(len(each) == HASH_BYTES for each in hashes)
        return min(known * BLOCK_SIZE, len(job.tokens) - 1)

    def _steps(self, job: Job, script: Script | None, telling: _Telling) -> Iterator[list[Output]]:
        if script is None:
            script = self._repeat(job)
        choices = [script.steps(choice) for choice in range(job.sampling.n)]
        for number in range(max(map(len, choices))):
            outputs = []
            for choice, steps in enumerate(choices):
                if choice not in telling.open or number >= len(steps):
                    continue
                last = number == len(steps) - 1 and not script.hang
                outputs.append(
                    self._output(telling, choice, steps[number], script.finish if last else None)
                )
            yield telling.count(outputs, script.usage)

    def _repeat(self, job: Job) -> Script:
        """The prompt in a circle, up to what was asked for."""
        if self._mode == "text":
            return Script(say=["The server has nothing to say."], finish="stop")
        room = min(job.sampling.max_tokens, CONTEXT_WINDOW - len(job.tokens))
        tokens = [job.tokens[place % len(job.tokens)] for place in range(room)]
        return Script(say=[tokens], finish="length")

    def _output(self, telling: _Telling, choice: int, said: Any, finish: str | None) -> Output:
        if self._mode == "text":
            return telling.told(choice, said if isinstance(said, dict) else {"text": said}, finish)
        tokens = said
        if isinstance(said, str):
            tokens = self._tokenizer.encode(said, add_special_tokens=False).ids
        return telling.made(choice, tokens, finish, self._vocabulary)

    def _step(self, outputs: list[Output], *, ended: bool) -> None:
        assert self._events is not None
        self._events.on_step(
            Step(
                outputs=outputs,
                running=len(self._running) - ended,
                waiting=0,
                waiting_tokens=0,
                kv_free_blocks=KV_BLOCKS - len(self._blocks),
                oldest_block_s=0.0,
                step_us=100,
                preemptions=0,
            )
        )


class _Telling:
    """The outputs of one job, and what of it was made so far."""

    def __init__(self, job: Job, cached: int) -> None:
        self.open = list(range(job.sampling.n))
        self._job = job
        self._made = [0] * job.sampling.n
        prompt = len(job.tokens) or len(job.request_json) // 8 or sum(map(len, job.inputs))
        self._usage = Usage(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=0)

    def made(self, choice: int, tokens: list[int], finish: str | None, vocabulary: int) -> Output:
        """Tokens, within what was asked for."""
        sampling = self._job.sampling
        room = sampling.max_tokens - self._made[choice]
        if len(tokens) > room or (len(tokens) == room and finish is None):
            tokens, finish = tokens[:room], "length"
        chances = None
        if sampling.logprobs is not None:
            first = self._made[choice]
            chances = [
                _chance(token, first + place, sampling.logprobs, vocabulary)
                for place, token in enumerate(tokens)
            ]
        self._made[choice] += len(tokens)
        return self._output(choice, finish, tokens=tokens, logprobs=chances)

    def told(self, choice: int, parts: dict[str, Any], finish: str | None) -> Output:
        """Text, thoughts and calls, of which each counts as a token."""
        calls = [ToolCallDelta(**each) for each in parts.get("calls", ())]
        self._made[choice] += 1
        return self._output(
            choice,
            finish,
            tokens=[],
            text=parts.get("text"),
            reasoning=parts.get("reasoning"),
            tool_calls=calls or None,
        )

    def vectors(self) -> Output:
        """One for each input, of numbers that every machine has exactly."""
        places = list(range(len(self._job.inputs)))
        values = array("f")
        for tokens in self._job.inputs:
            seed = sum((place + 1) * token for place, token in enumerate(tokens))
            values.extend((seed * (7 + j) % 127 - 63) / 64 for j in range(DIMENSIONS[0]))
        return self._output(
            0, "stop", tokens=[], vectors=Vectors(places=places, data=values.tobytes())
        )

    def end(self, choice: int) -> Output:
        """Nothing more of a choice."""
        return self._output(choice, "cancelled", tokens=[])

    def count(self, outputs: list[Output], usage: dict[str, Any] | None) -> list[Output]:
        """The outputs of one step with what it brings; `usage` replaces some of that."""
        counts = {
            "prompt_tokens": self._usage.prompt_tokens,
            "cached_tokens": self._usage.cached_tokens,
            "completion_tokens": sum(self._made),
        }
        self._usage = Usage(**{**counts, **(usage or {})})
        ended = {output.choice for output in outputs if output.finish is not None}
        self.open = [choice for choice in self.open if choice not in ended]
        return [msgspec.structs.replace(output, usage=self._usage) for output in outputs]

    def _output(self, choice: int, finish: str | None, **more: Any) -> Output:
        return Output(
            request=self._job.request,
            choice=choice,
            usage=self._usage,
            timing=TIMING,
            finish=finish,
            **more,
        )


def _chance(token: int, place: int, others: int, vocabulary: int) -> TokenLogprob:
    chance = -0.125 * (1 + place % 7)
    top = [((token + 11 * more) % vocabulary, chance - 0.5 * more) for more in range(others)]
    return TokenLogprob(token=token, logprob=chance, top=top)
