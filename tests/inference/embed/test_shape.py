"""An encoder's configuration: what it says, and every complaint by file and field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inference.embed.shape import read_shape
from inference.engines.embed import packaged_model
from inference.errors import ModelError
from tests.support.encoders import CONTEXT, HIDDEN, SHORT, make_cross_encoder, make_encoder


def test_packaged_model_cannot_be_cut() -> None:
    shape = read_shape(packaged_model())
    assert (shape.dimensions, shape.context_window, shape.pooling) == ((384,), 512, "mean")


def test_matryoshka_dimensions(tmp_path: Path) -> None:
    shape = read_shape(make_encoder(tmp_path))
    assert (shape.dimensions, shape.context_window) == ((HIDDEN, SHORT), CONTEXT)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_type", "roberta"),
        ("hidden_act", "relu"),
        ("position_embedding_type", "relative_key"),
        ("quantization_config", {"bits": 8}),
        ("num_attention_heads", 5),
        ("hidden_size", 0),
        ("max_position_embeddings", "many"),
        ("matryoshka_dimensions", [HIDDEN + 1]),
        ("matryoshka_dimensions", [True]),
        ("matryoshka_dimensions", 16),
    ],
)
def test_bad_fields_are_named(tmp_path: Path, field: str, value: Any) -> None:
    folder = make_encoder(tmp_path, **{field: value})
    with pytest.raises(ModelError, match=rf"config\.json: {field}: "):
        read_shape(folder)


def test_other_pooling_is_refused(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    with pytest.raises(ModelError, match=r"1_Pooling/config\.json: pooling_mode_\*"):
        read_shape(folder)


def test_a_cross_encoder_has_one_dimension(tmp_path: Path) -> None:
    shape = read_shape(make_cross_encoder(tmp_path))
    assert shape.scores and shape.dimensions == (1,)


@pytest.mark.parametrize(
    ("field", "value"), [("id2label", {"0": "no", "1": "yes"}), ("type_vocab_size", 1)]
)
def test_a_cross_encoder_that_cannot_be_is_refused(tmp_path: Path, field: str, value: Any) -> None:
    folder = make_cross_encoder(tmp_path, **{field: value})
    with pytest.raises(ModelError, match=rf"config\.json: {field}: "):
        read_shape(folder)
