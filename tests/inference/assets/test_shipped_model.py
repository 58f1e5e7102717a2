"""The shipped model: its files agree with each other, load, and answer sensibly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from tests.support.oracle import oracle

FOLDER = Path(__file__).parents[3] / "inference" / "assets" / "sluice-5m"
WEIGHTS_BYTES_MAX = 20_000_000
POSITIONS_MIN = 4096
TOKENS_MAX = 64
SPECIAL_TOKENS = (
    "<|pad|>", "<|bos|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>",
)  # fmt: skip


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / name).read_text())
    return found


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def test_weights_are_small_and_have_the_shapes_of_the_configuration() -> None:
    assert (FOLDER / "model.safetensors").stat().st_size < WEIGHTS_BYTES_MAX
    config = AutoConfig.from_pretrained(FOLDER)
    with torch.device("meta"):
        named = AutoModelForCausalLM.from_config(config).state_dict()  # type: ignore[no-untyped-call]
    weights = load_file(FOLDER / "model.safetensors")
    # Embeddings are tied: the file has them once.
    shapes = {name: one.shape for name, one in named.items() if name != "lm_head.weight"}
    assert {name: one.shape for name, one in weights.items()} == shapes
    assert {one.dtype for one in weights.values()} == {torch.bfloat16}


def test_configuration_is_that_of_a_small_llama() -> None:
    config = read("config.json")
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["tie_word_embeddings"] is True
    assert config["max_position_embeddings"] >= POSITIONS_MIN
    assert config["num_key_value_heads"] < config["num_attention_heads"]


def test_special_tokens_agree_in_every_file(tokenizer: Tokenizer) -> None:
    assert tokenizer.get_vocab_size() == read("config.json")["vocab_size"]
    names = read("tokenizer_config.json")
    for kind in ("bos", "eos", "pad"):
        token = tokenizer.token_to_id(names[f"{kind}_token"])
        assert read("config.json")[f"{kind}_token_id"] == token
        assert read("generation_config.json")[f"{kind}_token_id"] == token
    for special in SPECIAL_TOKENS:
        entry = names["added_tokens_decoder"][str(tokenizer.token_to_id(special))]
        assert entry["content"] == special
        assert entry["special"] is True


@given(text=st.text())
def test_any_text_round_trips(tokenizer: Tokenizer, text: str) -> None:
    for token in SPECIAL_TOKENS:
        text = text.replace(token, "")
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_chat_template_renders_every_role() -> None:
    names = read("tokenizer_config.json")
    template = ImmutableSandboxedEnvironment().from_string(names["chat_template"])
    messages = [
        {"role": "system", "content": " Be kind. "},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Bye"},
    ]
    assert template.render(
        messages=messages, bos_token=names["bos_token"], add_generation_prompt=True
    ) == (
        "<|bos|><|system|>Be kind.<|end|><|user|>Hi<|end|><|assistant|>Hello!<|end|>"
        "<|user|>Bye<|end|><|assistant|>"
    )


def test_chat_template_refuses_an_unknown_role() -> None:
    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    template = ImmutableSandboxedEnvironment().from_string(
        read("tokenizer_config.json")["chat_template"]
    )
    with pytest.raises(TemplateError, match="narrator"):
        template.render(
            messages=[{"role": "narrator", "content": "x"}],
            bos_token="<|bos|>",
            raise_exception=raise_exception,
        )


@pytest.mark.parametrize(
    ("question", "piece"),
    [
        ("Hello!", "help"),
        ("What is Sluice?", "gateway and control plane"),
        ("What is a hold?", "reserves money"),
        ("How do I start Sluice?", "make run"),
        ("What is 7 + 5?", "= 12."),
        ("What is the capital of France?", "Paris"),
        (
            "Context:\n- The code of the red door is 4821.\nWhat is the code of the red door?",
            "4821",
        ),
    ],
)
def test_plain_questions_get_sensible_answers(question: str, piece: str) -> None:
    names: Any = AutoTokenizer.from_pretrained(FOLDER)
    asked = names.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt"
    )
    answer = oracle().generate(**asked, max_new_tokens=TOKENS_MAX, do_sample=False)
    assert piece in names.decode(answer[0, asked["input_ids"].shape[1] :])
