"""What is the embed engine's own: its facts, its checks at the start, its death, its options."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from inference.contract.capabilities import Capability
from inference.embed.encoder import Encoder
from inference.embed.queue import Piece
from inference.engines.embed import EmbedEngine, EmbedOptions, packaged_model
from inference.errors import ModelError
from tests.inference.engines.sink import Sink
from tests.support.encoders import (
    CONTEXT,
    ENCODER,
    HIDDEN,
    PIECES,
    SHORT,
    make_embed_job,
    make_encoder,
)
from tests.support.waiting import until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_encoder(tmp_path)


async def test_facts(folder: Path) -> None:
    engine = EmbedEngine(folder, EmbedOptions(device="cpu", dtype="float32"))
    facts = engine.facts
    assert (facts.engine, facts.model, facts.dtype) == ("embed", ENCODER, "float32")
    assert (facts.context_window, facts.vocab_size) == (CONTEXT, len(PIECES))
    assert facts.dimensions == (HIDDEN, SHORT)
    assert (
        Capability.EMBEDDINGS in facts.capabilities and Capability.TOKENS not in facts.capabilities
    )


async def test_death_is_heard(folder: Path) -> None:
    """Ids that slip past every check break the embedding, and the node must hear it."""
    engine, sink = EmbedEngine(folder, EmbedOptions(device="cpu")), Sink()
    await engine.start(sink)
    held = make_embed_job(1, [[5]])
    engine.submit(held)
    held.inputs[0][0] = len(PIECES)
    await sink.until(lambda: bool(sink.deaths))
    assert isinstance(sink.deaths[0], IndexError)
    await engine.close()


async def test_the_step_under_way_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def late(encoder: Encoder, pieces: list[Piece]) -> dict[Piece, bytes]:
        while not done.is_set():
            encoder.encode([[5]])
        return {piece: bytes(4 * HIDDEN) for piece in pieces}

    monkeypatch.setattr("inference.engines.embed._encode", late)
    engine, sink = EmbedEngine(folder, EmbedOptions(device="cpu")), Sink()
    await engine.start(sink)
    try:
        assert engine.computing() is None
        job = make_embed_job(1, [[5]])
        engine.submit(job)
        await until(lambda: engine.computing() is not None)
        step = engine.computing()
        assert step is not None and step.requests == [job.request]
        before_s = step.cpu_s()
        await until(lambda: step.cpu_s() > before_s)
        done.set()
        await sink.finished(job.request)
        assert engine.computing() is None
    finally:
        done.set()
        await engine.close()


def test_tokenizer_must_fit_the_weights(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path, vocab_size=len(PIECES) - 1)
    with pytest.raises(ModelError, match=r"tokenizer\.json: vocabulary: ids go up to"):
        EmbedEngine(folder)


def test_a_frame_must_hold_a_vector(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path, hidden_size=2**20)
    with pytest.raises(ModelError, match="hidden_size"):
        EmbedEngine(folder, EmbedOptions(dtype="float32"))


def test_cuda_is_refused_where_there_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ModelError, match="device: cuda"):
        EmbedEngine(folder, EmbedOptions(device="cuda"))


@pytest.mark.parametrize(
    "given", [{"device": "tpu"}, {"dtype": "int8"}, {"step_tokens": 0}, {"threads": 0}]
)
def test_options_are_checked(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        EmbedOptions(**given)


def test_the_packaged_model_has_a_name_of_its_own() -> None:
    engine = EmbedEngine(packaged_model(), EmbedOptions(dtype="float32"))
    assert engine.facts.model == "all-minilm-l6-v2"
