"""A checkpoint that cannot be served is refused by the name of the file or field at fault."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from inference.compact.config.shape import read_shape
from inference.compact.config.vocabulary import check_vocabulary
from inference.compact.load.placement import choose_placement
from inference.compact.load.weights import load_weights
from inference.compact.options import CompactOptions
from inference.errors import ModelError
from tests.inference.compact.shapes import SHAPES, WINDOW
from tests.inference.compact.tiny import EOS, VOCABULARY, save_model

OPTIONS = CompactOptions(device="cpu", dtype="float32", kv_blocks=4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tmp_path)
    return tmp_path


def _edit(path: Path, **changes: Any) -> None:
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, **changes}))


def test_what_another_engine_computes_is_sent_there(folder: Path) -> None:
    _edit(folder / "config.json", architectures=["Gemma3ForCausalLM"])
    with pytest.raises(ModelError, match="Gemma3ForCausalLM.* try --engine vllm"):
        read_shape(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("architectures", ["GPT2LMHeadModel"]),
        ("architectures", None),
        ("hidden_act", "gelu"),
        ("attention_bias", "yes"),
        ("vocab_size", "many"),
        ("vocab_size", True),
        ("head_dim", 15),
        ("num_hidden_layers", 0),
        ("num_key_value_heads", 3),
        ("tie_word_embeddings", 1),
        ("rope_parameters", {"rope_type": "dynamic", "factor": 2.0}),
        ("rope_parameters", {"rope_type": "llama3", "factor": 2.0}),
        ("rope_parameters", {"rope_type": "yarn"}),
        ("rope_parameters", {"rope_type": "linear", "factor": 0}),
        ("rope_parameters", {"rope_theta": "large"}),
        ("rope_parameters", "fast"),
        ("partial_rotary_factor", 0.5),
        ("rms_norm_eps", -1),
        ("rms_norm_eps", None),
    ],
)
def test_configuration_is_checked(folder: Path, field: str, value: object) -> None:
    _edit(folder / "config.json", **{field: value})
    named = "rope_" if field == "rope_parameters" else field
    with pytest.raises(ModelError, match=f"config.json: {named}"):
        read_shape(folder)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("qwen2", "mlp_bias", True),
        ("mistral", "attention_bias", True),
        ("mistral", "sliding_window", 0),
        ("mistral", "sliding_window", "wide"),
        ("qwen2-window", "max_window_layers", None),
        ("qwen3-window", "layer_types", ["full_attention"]),
        ("qwen3-window", "layer_types", ["chunked_attention"] * 3),
        ("smollm3", "no_rope_layers", [1, 2, 1]),
        ("smollm3", "use_sliding_window", True),
        ("mixtral", "num_experts_per_tok", 9),
        ("mixtral", "num_local_experts", None),
        ("mixtral", "intermediate_size", 97),
        ("qwen3-moe", "moe_intermediate_size", None),
        ("qwen3-moe", "mlp_only_layers", 1),
        ("qwen3-moe", "norm_topk_prob", "yes"),
    ],
)
def test_fields_of_one_architecture(tmp_path: Path, name: str, field: str, value: object) -> None:
    kind, overrides = SHAPES[name]
    save_model(tmp_path, kind, **overrides)
    read_shape(tmp_path)
    _edit(tmp_path / "config.json", **{field: value})
    # A checkpoint without the newer list falls back to the older field.
    if field == "max_window_layers":
        _edit(tmp_path / "config.json", layer_types=None)
    with pytest.raises(ModelError, match=f"config.json: {field}"):
        read_shape(tmp_path)


def test_windows_come_from_the_older_fields_too(tmp_path: Path) -> None:
    kind, overrides = SHAPES["qwen2-window"]
    save_model(tmp_path, kind, **overrides)
    assert read_shape(tmp_path).windows == (None, WINDOW, WINDOW)
    _edit(tmp_path / "config.json", layer_types=None, max_window_layers=2)
    assert read_shape(tmp_path).windows == (None, None, WINDOW)
    _edit(tmp_path / "config.json", use_sliding_window=False)
    assert read_shape(tmp_path).windows == (None, None, None)


def test_a_mistral_window_may_be_null_absent_or_as_wide_as_the_context(tmp_path: Path) -> None:
    save_model(tmp_path, "mistral", max_position_embeddings=8192)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    del values["sliding_window"]
    path.write_text(json.dumps(values))
    assert set(read_shape(tmp_path).windows) == {4096}
    for wide in (None, 8192):
        _edit(path, sliding_window=wide)
        assert set(read_shape(tmp_path).windows) == {None}


def test_a_stretched_context_counts(tmp_path: Path) -> None:
    kind, overrides = SHAPES["yarn-rope"]
    save_model(tmp_path, kind, **overrides)
    _edit(tmp_path / "config.json", max_position_embeddings=64)
    assert read_shape(tmp_path).context_window == 4 * 64


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_configuration_must_be_there_and_json(folder: Path, content: str | None) -> None:
    (folder / "config.json").unlink()
    if content is not None:
        (folder / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config\.json"):
        read_shape(folder)


def test_end_tokens_come_from_the_generation_settings(folder: Path) -> None:
    assert read_shape(folder).eos == {EOS}
    _edit(folder / "generation_config.json", eos_token_id=[5, 9])
    assert read_shape(folder).eos == {5, 9}
    (folder / "generation_config.json").unlink()
    _edit(folder / "config.json", eos_token_id=None)
    assert read_shape(folder).eos == frozenset()
    for wrong in ("</s>", [3, VOCABULARY], -1):
        _edit(folder / "config.json", eos_token_id=wrong)
        with pytest.raises(ModelError, match="eos_token_id"):
            read_shape(folder)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def _drop_one(path: Path) -> None:
    tensors = load_file(path)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, path)


def _reshape_one(path: Path) -> None:
    tensors = load_file(path)
    tensors["model.norm.weight"] = torch.ones(7)
    save_file(tensors, path)


def _add_one(path: Path) -> None:
    tensors = load_file(path)
    tensors["model.layers.0.self_attn.sinks"] = torch.ones(4)
    save_file(tensors, path)


def _quantize_one(path: Path) -> None:
    tensors = load_file(path)
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.int8)
    save_file(tensors, path)


def _poison(value: float) -> Callable[[Path], None]:
    def poison(path: Path) -> None:
        tensors = load_file(path)
        tensors["model.layers.2.mlp.down_proj.weight"][5, 7] = value
        save_file(tensors, path)

    return poison


def _fill_with_noise(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(5000))


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (Path.unlink, "model.safetensors"),
        (_truncate, "model.safetensors"),
        (_drop_one, "model.layers.1.mlp.up_proj.weight"),
        (_reshape_one, r"model.norm.weight: is \(7,\), must be \(64,\)"),
        (_add_one, "model.layers.0.self_attn.sinks: is not part of"),
        (_quantize_one, "model.norm.weight: torch.int8 is not supported"),
        (_poison(float("nan")), "model.layers.2.mlp.down_proj.weight: holds values"),
        (_poison(float("-inf")), "model.layers.2.mlp.down_proj.weight: holds values"),
        (_fill_with_noise, "model.safetensors"),
    ],
)
def test_weights_are_checked(folder: Path, damage: Callable[[Path], None], named: str) -> None:
    damage(folder / "model.safetensors")
    shape = read_shape(folder)
    with pytest.raises(ModelError, match=named):
        load_weights(folder, shape, choose_placement(shape, OPTIONS))


@pytest.mark.parametrize("index", ["{", "{}", '{"weight_map": 3}'])
def test_a_broken_index_is_named(folder: Path, index: str) -> None:
    (folder / "model.safetensors.index.json").write_text(index)
    shape = read_shape(folder)
    with pytest.raises(ModelError, match=r"index\.json"):
        load_weights(folder, shape, choose_placement(shape, OPTIONS))


def test_frequencies_that_old_files_carry_are_no_complaint(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    save_file(tensors, folder / "model.safetensors")
    shape = read_shape(folder)
    assert len(load_weights(folder, shape, choose_placement(shape, OPTIONS)).layers) == 3


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    kind, overrides = SHAPES["mixtral"]
    save_model(tmp_path, kind, **overrides)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.1.block_sparse_moe.experts.6.w3.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    shape = read_shape(tmp_path)
    with pytest.raises(ModelError, match=r"experts\.6\.w3\.weight"):
        load_weights(tmp_path, shape, choose_placement(shape, OPTIONS))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    save_model(tmp_path, max_shard_size="60KB")
    next(iter(tmp_path.glob("model-00002-*"))).unlink()
    shape = read_shape(tmp_path)
    with pytest.raises(ModelError, match="model-00002"):
        load_weights(tmp_path, shape, choose_placement(shape, OPTIONS))


@pytest.mark.parametrize(
    ("tokenizer", "named"),
    [
        ({"model": {"vocab": {"a": 0, "b": VOCABULARY}}}, "vocab_size"),
        (
            {"model": {"vocab": [[str(number), 0.0] for number in range(VOCABULARY + 1)]}},
            "vocab_size",
        ),
        (
            {"model": {"vocab": {}}, "added_tokens": [{"id": VOCABULARY, "content": "<s>"}]},
            "vocab_size",
        ),
        ({"model": {}}, "no usable vocabulary"),
        ([], "no usable vocabulary"),
    ],
)
def test_tokenizer_must_fit_the_model(folder: Path, tokenizer: Any, named: str) -> None:
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ModelError, match=rf"tokenizer\.json: .*{named}"):
        check_vocabulary(folder, read_shape(folder).vocab_size)


def test_a_fitting_tokenizer_passes(folder: Path) -> None:
    check_vocabulary(folder, read_shape(folder).vocab_size)
    vocabulary = {str(number): number for number in range(VOCABULARY)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": None, "eos_token": "3"}))
    check_vocabulary(folder, read_shape(folder).vocab_size)


@pytest.mark.parametrize("token", ["<|end|>", {"content": "<|end|>"}])
def test_template_tokens_must_be_tokens(folder: Path, token: object) -> None:
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0}}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": token}))
    with pytest.raises(ModelError, match=r"tokenizer_config\.json: eos_token: .*<\|end\|>"):
        check_vocabulary(folder, read_shape(folder).vocab_size)


@pytest.mark.parametrize(
    "wrong",
    [
        {"device": "tpu"},
        {"dtype": "int8"},
        {"block_size": 0},
        {"running_max": 0},
        {"running_max": 65, "step_tokens": 64},
        {"threads": 0},
        {"kv_blocks": 0},
    ],
    ids=str,
)
def test_options_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CompactOptions(**wrong)


def test_placement_counts_blocks_from_bytes(folder: Path) -> None:
    shape = read_shape(folder)
    # 3 layers, keys and values, 2 heads of 16, 4 bytes, 32 tokens.
    block_bytes = 3 * 2 * 2 * 16 * 4 * 32
    options = CompactOptions(device="cpu", dtype="float32", kv_bytes=10 * block_bytes + 1)
    assert choose_placement(shape, options).kv_blocks == 10
    with pytest.raises(ModelError, match="kv_bytes"):
        choose_placement(shape, CompactOptions(device="cpu", dtype="float32", kv_bytes=99))
