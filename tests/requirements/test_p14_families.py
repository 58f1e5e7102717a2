"""P14: tool calls of other families than the shipped model's, by real processes.

The weights are random: that a call has the family's form is the grammar's doing, and that a client
reads it as any other call is the gateway's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from openai import OpenAI

from controlplane.composed.demo import MODEL
from tests.inference.compact.tiny import save_model
from tests.inference.text.tiny import tiny_tokenizer
from tests.support.families import FAMILIES, add_tokens
from tests.support.product import Plan, running_product
from tests.support.servers import Servers

CONTEXT = 2048
# Of the family, and of the weights.
KINDS = {"llama": "llama", "qwen3-coder": "qwen3", "mistral-named": "mistral"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Rome", "Oslo"]},
        "nights": {"type": "integer", "minimum": 1, "maximum": 14},
        "note": {"type": "string", "maxLength": 12},
    },
    "required": ["city", "nights", "note"],
    "additionalProperties": False,
}
BOOK: Any = {"type": "function", "function": {"name": "book", "parameters": SCHEMA}}


def make_checkpoint(folder: Path, name: str) -> Path:
    family = FAMILIES[name]
    tokenizer = add_tokens(tiny_tokenizer(), family)
    save_model(
        folder,
        KINDS[name],
        vocab_size=tokenizer.get_vocab_size(),
        max_position_embeddings=CONTEXT,
        eos_token_id=tokenizer.token_to_id("<|end|>"),
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"chat_template": family.template, "eos_token": "<|end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("name", KINDS)
def test_a_forced_call_is_a_call_like_any_other(
    servers: Servers, tmp_path: Path, name: str
) -> None:
    folder = make_checkpoint(tmp_path, name)
    with running_product(servers, Plan(model=folder)) as product:
        client = OpenAI(base_url=f"{product.urls[0]}/v1", api_key=product.key, max_retries=0)
        messages: list[Any] = [{"role": "user", "content": "Book a room."}]
        asked: dict[str, Any] = {
            "model": MODEL.name, "messages": messages, "tools": [BOOK], "tool_choice": "required",
            "max_tokens": 300, "seed": 1, "parallel_tool_calls": False,
        }  # fmt: skip
        whole = client.chat.completions.create(**asked)
        (choice,) = whole.choices
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
        (call,) = choice.message.tool_calls
        assert call.function.name == "book"
        jsonschema.validate(json.loads(call.function.arguments), SCHEMA)

        arguments = ""
        for chunk in client.chat.completions.create(**asked, stream=True):
            for part in chunk.choices[0].delta.tool_calls or []:
                arguments += part.function.arguments or ""
        assert arguments == call.function.arguments

        result = {"role": "tool", "tool_call_id": call.id, "content": "done"}
        asked["messages"] = [*messages, choice.message, result]
        later = client.chat.completions.create(**{**asked, "max_tokens": 8})
        assert later.usage.prompt_tokens > whole.usage.prompt_tokens
        client.close()
