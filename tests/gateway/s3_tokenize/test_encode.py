"""Prompts to token ids: what a tenant sent before is not encoded anew, and long ones wait aside."""

from __future__ import annotations

import threading

import msgspec
import pytest

from controlplane.bridge.metrics.page import metrics_page
from controlplane.bridge.record.recorder import PostgresRecorder
from controlplane.gateway.ask import Ask, Operation
from controlplane.gateway.call import Call
from controlplane.gateway.s3_tokenize import encode
from controlplane.gateway.s3_tokenize.encode import encode_prompt
from inference.contract.frames import Sampling
from inference.text.model_text import ModelText
from inference.text.pieces import PieceCache
from inference.text.templates import ChatTemplates
from tests.inference.text.tiny import tiny_files, tiny_tokenizer
from tests.support.fleet import MODEL, echo_node
from tests.support.ports import PROJECT
from tests.support.serving import Serving

PROMPT = "<|user|>room 12<|end|><|assistant|>"


def make_ask(operation: Operation) -> Ask:
    return Ask(
        operation=operation,
        model=MODEL,
        stream=False,
        include_usage=False,
        sampling=Sampling(max_tokens=0),
        output_tokens=6,
        stop=(),
        bytes=100,
        text=PROMPT,
    )


class WatchedText(ModelText):
    """Remembers the threads in which it encoded."""

    def __init__(self, pieces: PieceCache) -> None:
        self.threads: list[int] = []
        super().__init__(tiny_tokenizer(), ChatTemplates(None, None), pieces)

    def _ids(self, text: str, *, add_special: bool) -> tuple[int, ...]:
        self.threads.append(threading.get_ident())
        return super()._ids(text, add_special=add_special)


@pytest.mark.parametrize("chars_max", [0, encode.INLINE_CHARS_MAX])
async def test_only_what_is_missing_and_long_leaves_the_loop(
    chars_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "INLINE_CHARS_MAX", chars_max)
    text, ask = WatchedText(PieceCache()), make_ask("chat")
    found = [await encode_prompt(Call([]), ask, PROMPT, text, salt=b"one") for _ in range(2)]
    assert found == [tiny_tokenizer().encode(PROMPT).ids] * 2
    (thread,) = text.threads
    assert (thread == threading.get_ident()) == (chars_max > 0)


async def test_a_text_completion_is_not_kept() -> None:
    pieces = PieceCache()
    text = WatchedText(pieces)
    for _ in range(2):
        await encode_prompt(Call([]), make_ask("completion"), PROMPT, text, salt=b"one")
    assert len(text.threads) == 2 and pieces.size_bytes == 0


def figures(bare: Serving) -> dict[str, float]:
    page = metrics_page(bare.under_test.world, PostgresRecorder(""), ()).to_bytes().decode()
    lines = [line.split() for line in page.splitlines() if line.startswith("sluice_encode_cache_")]
    return {name.removeprefix("sluice_encode_cache_"): float(value) for name, value in lines}


async def test_repeated_turns_are_counted_for_each_tenant(bare: Serving) -> None:
    for name, content in tiny_files().items():
        (bare.model / name).write_bytes(content)
    sizes = {"vocab_size": tiny_tokenizer().get_vocab_size(), "max_position_embeddings": 4096}
    (bare.model / "config.json").write_bytes(msgspec.json.encode(sizes))
    talk = [{"role": "user", "content": f"turn {number}"} for number in range(3)]
    async with echo_node(bare.under_test.fleet_url, bare.model):
        await bare.under_test.served()
        for turns, hits, misses in ((talk[:2], 0, 2), (talk, 2, 3)):
            assert (await bare.chat(messages=turns)).status_code == 200
            counted = figures(bare)
            assert (counted["hits_total"], counted["misses_total"]) == (hits, misses)
            assert counted["bytes"] > 0
        keys = bare.under_test.keys
        project = msgspec.structs.replace(keys.current.projects[PROJECT], salt=b"other")
        keys.current = msgspec.structs.replace(keys.current, projects={PROJECT: project})
        assert (await bare.chat(messages=talk)).status_code == 200
        counted = figures(bare)
        assert (counted["hits_total"], counted["misses_total"]) == (2, 6)
        await bare.under_test.at_rest()
