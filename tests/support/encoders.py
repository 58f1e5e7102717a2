"""Tiny random sentence encoders with a WordPiece tokenizer, and a gateway that serves one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import httpx2
import msgspec
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, BertModel

from controlplane.gateway.snapshot import ModelRecord
from inference.contract.frames import REQUEST_ID_BYTES, Job, Output, Sampling
from inference.engines.base import Engine
from inference.engines.embed import EmbedEngine, EmbedOptions
from inference.node.assets import ModelAssets
from inference.node.options import NodeOptions
from inference.node.service import Node
from tests.support.gateway import GatewayUnderTest
from tests.support.nodes import let_in
from tests.support.ports import PRICE
from tests.support.waiting import until

ENCODER = "tiny-encoder"
POOL = "embeddings"
CONTEXT = 48
HIDDEN = 32
SHORT = 16
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, *ascii_lowercase, *(f"##{char}" for char in ascii_lowercase)]
PATH = "/v1/embeddings"
ANSWER_S_MAX = 60.0


def make_encoder(folder: Path, **changes: Any) -> Path:
    """A checkpoint folder; `changes` go into its config.json."""
    path = folder / ENCODER
    config = BertConfig(
        vocab_size=len(PIECES), hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=CONTEXT, initializer_range=0.3,
    )  # fmt: skip
    torch.manual_seed(7)
    BertModel(config).save_pretrained(path)
    told = json.loads((path / "config.json").read_text())
    told |= {"matryoshka_dimensions": [SHORT, HIDDEN], **changes}
    (path / "config.json").write_text(json.dumps(told))
    make_tokenizer().save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text("{}")
    return path


def make_cross_encoder(folder: Path, **changes: Any) -> Path:
    """The same with a classifier of one label above it."""
    path = folder / ENCODER
    config = BertConfig(
        vocab_size=len(PIECES), hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=CONTEXT, initializer_range=0.3,
    )  # fmt: skip
    config.num_labels = 1
    torch.manual_seed(11)
    BertForSequenceClassification(config).save_pretrained(path)
    told = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps(told))
    make_tokenizer().save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text("{}")
    return path


def pair_scores(folder: Path, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Scores as `transformers` computes them, each pair by itself."""
    model = BertForSequenceClassification.from_pretrained(folder, attn_implementation="eager")
    model.train(mode=False)
    scores = []
    with torch.inference_mode():
        for pair in pairs:
            read = make_tokenizer().encode(*pair)
            ids, types = torch.tensor([read.ids]), torch.tensor([read.type_ids])
            logit = model(input_ids=ids, token_type_ids=types).logits[0, 0]
            scores.append(float(torch.sigmoid(logit)))
    return scores


def make_tokenizer() -> Tokenizer:
    """One token a letter, between [CLS] and [SEP]; of two texts the second ends with one, too."""
    vocabulary = {piece: place for place, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


@dataclass
class Embedding:
    """A running gateway whose catalog has an encoder, and a client with a key."""

    under_test: GatewayUnderTest
    client: httpx2.AsyncClient
    model: Path

    async def embed(self, given: Any, **fields: Any) -> httpx2.Response:
        """An embedding request."""
        body = {"model": ENCODER, "input": given, **fields}
        return await self.client.post(PATH, json=body, timeout=ANSWER_S_MAX)

    async def served(self) -> None:
        """Wait until the encoder can be asked."""
        await until(lambda: self.under_test.fleet.candidates(ENCODER))


def add_encoder(under_test: GatewayUnderTest, *, pool: str = POOL) -> None:
    """Put the encoder beside the model that generates."""
    record = ModelRecord(
        name=ENCODER, task="embed", pool=pool, context_window=CONTEXT, output_tokens_default=0,
        output_tokens_max=0, price=PRICE, created_s=1_700_000_000, owner="sluice",
    )  # fmt: skip
    now = under_test.keys.current
    catalog = {**now.models, ENCODER: record}
    under_test.keys.current = msgspec.structs.replace(now, models=catalog)


@contextlib.asynccontextmanager
async def encoder_node(
    under_test: GatewayUnderTest,
    model: Path,
    *,
    name: str = "encoder",
    pool: str = POOL,
    **options: Any,
) -> AsyncIterator[Node]:
    """A real node that embeds, connected when it can be."""
    chosen = EmbedOptions(dtype="float32", device="cpu", **options)
    engine: Engine = EmbedEngine(model, chosen)
    settings = NodeOptions(
        gateways=(under_test.fleet_url,), name=name, pool=pool, credential=let_in(under_test, name)
    )
    node = Node(engine, ModelAssets(model), settings)
    await node.start()
    try:
        yield node
    finally:
        await node.close()


def make_embed_job(name: int, inputs: list[list[int]], **changes: Any) -> Job:
    """A job for the tiny encoder; `name` makes its id."""
    job = Job(
        request=bytes([name]) * REQUEST_ID_BYTES,
        model=ENCODER,
        tokens=[],
        salt=b"",
        hashes=b"",
        sampling=Sampling(max_tokens=0),
        stop_tokens=[],
        deadline_ms=60_000,
        inputs=inputs,
    )
    return msgspec.structs.replace(job, **changes)


def vectors_of(outputs: list[Output]) -> dict[int, bytes]:
    """The vector of each input; an input that comes twice fails."""
    found: dict[int, bytes] = {}
    for output in outputs:
        if output.vectors is None:
            continue
        places, data = output.vectors.places, output.vectors.data
        size = len(data) // len(places)
        for number, place in enumerate(places):
            assert place not in found
            found[place] = data[number * size : (number + 1) * size]
    return found
