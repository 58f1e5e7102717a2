"""The encoder against `transformers`: tiny random checkpoints, and the packaged model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoModel

from inference.embed.encoder import Encoder
from inference.embed.shape import read_shape
from inference.engines.embed import packaged_model
from inference.errors import ModelError
from tests.support.encoders import (
    CONTEXT,
    PIECES,
    make_cross_encoder,
    make_encoder,
    make_tokenizer,
    pair_scores,
)

TOLERANCE = 2e-6
BF16_COSINE_MIN = 0.999
SENTENCES = [
    "A cat sits on the mat.",
    "A kitten is resting on a rug.",
    "The stock market fell sharply today.",
    "Shares lost a lot of their value this morning, and traders are worried about inflation.",
]


def load(folder: Path, dtype: str = "float32") -> Encoder:
    return Encoder(folder, read_shape(folder), dtype=dtype, device="cpu")


def some_inputs(*lengths: int) -> list[list[int]]:
    random = torch.Generator().manual_seed(5)
    return [torch.randint(5, len(PIECES), (n,), generator=random).tolist() for n in lengths]


def reference(folder: Path, inputs: list[list[int]], pooling: str = "mean") -> Tensor:
    """Each input by itself, so that no mask and no padding takes part."""
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    rows = []
    with torch.inference_mode():
        for ids in inputs:
            states = model(torch.tensor([ids])).last_hidden_state[0]
            rows.append(states.mean(dim=0) if pooling == "mean" else states[0])
    return torch.nn.functional.normalize(torch.stack(rows), dim=-1)


def sentence_ids() -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(packaged_model() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return [tokenizer.encode(sentence).ids for sentence in SENTENCES]


@pytest.mark.parametrize("lengths", [(1,), (CONTEXT,), (7, 7, 7), (1, 40, 3, CONTEXT, 12)])
def test_equals_transformers(tmp_path: Path, lengths: tuple[int, ...]) -> None:
    folder = make_encoder(tmp_path)
    inputs = some_inputs(*lengths)
    made = load(folder).encode(inputs)
    assert made.dtype == torch.float32
    assert torch.allclose(made, reference(folder, inputs), atol=TOLERANCE)


def test_first_token_pooling(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    inputs = some_inputs(5, 9)
    expected = reference(folder, inputs, pooling="cls")
    assert torch.allclose(load(folder).encode(inputs), expected, atol=TOLERANCE)


def test_packaged_model_equals_transformers() -> None:
    inputs = sentence_ids()
    made = load(packaged_model()).encode(inputs)
    assert torch.allclose(made, reference(packaged_model(), inputs), atol=TOLERANCE)


def test_packaged_model_finds_what_belongs_together() -> None:
    vectors = load(packaged_model()).encode(sentence_ids())
    scores = vectors @ vectors.T
    assert scores[0, 1] > 0.5 and scores[2, 3] > 0.5
    assert scores[:2, 2:].max() < 0.2


def test_bfloat16_is_close() -> None:
    inputs = sentence_ids()
    wide, narrow = (
        load(packaged_model(), dtype).encode(inputs) for dtype in ("float32", "bfloat16")
    )
    assert (wide * narrow).sum(dim=-1).min() > BF16_COSINE_MIN


def test_missing_weights_are_named(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path, num_hidden_layers=3)
    with pytest.raises(ModelError, match=r"encoder\.layer\.2\.attention\.self\.query\.weight"):
        load(folder)


def test_wrong_size_is_named(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path, intermediate_size=65)
    with pytest.raises(ModelError, match=r"layer\.0\.intermediate\.dense\.weight: is \(64, 32\)"):
        load(folder)


def test_broken_file_is_named(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path)
    (folder / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load(folder)


PAIRS = [("abc", "abc"), ("q", "a much longer text than the others are"), ("x y", "z"), ("a", "b")]


def test_a_cross_encoder_equals_transformers(tmp_path: Path) -> None:
    folder = make_cross_encoder(tmp_path)
    inputs = [make_tokenizer().encode(*pair).ids for pair in PAIRS]
    made = load(folder).encode(inputs)
    assert made.dtype == torch.float32 and made.shape == (len(PAIRS), 1)
    expected = torch.tensor(pair_scores(folder, PAIRS))
    assert torch.allclose(made[:, 0], expected, atol=TOLERANCE)
    assert len({round(score, 4) for score in expected.tolist()}) == len(PAIRS)


def test_the_second_text_counts_as_second(tmp_path: Path) -> None:
    """The order of a pair matters, which without token types it would do less."""
    folder = make_cross_encoder(tmp_path)
    encoder = load(folder)
    assert encoder.head is not None
    ids = make_tokenizer().encode("ab", "cd").ids
    typed = encoder.encode([ids])
    encoder.head.second.zero_()
    assert not torch.allclose(typed, encoder.encode([ids]), atol=1e-4)
