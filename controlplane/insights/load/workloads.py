"""What is asked: the reference workload, whose agents' prompts grow, and the unhappy kinds."""

import json
import random
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

# The reference workload, in tokens.
SYSTEM_TOKENS, CONTEXT_TOKENS, QUESTION_TOKENS, OUTPUT_TOKENS = 200, 800, 25, 150
PROMPT_TOKENS = SYSTEM_TOKENS + CONTEXT_TOKENS + QUESTION_TOKENS
HEAD_SEED = 7
CALIBRATION_WORDS = 800
WORDS_PER_TOKEN_MIN, WORDS_PER_TOKEN_MAX = 0.1, 1.0
GIANT_TOOLS, GIANT_FIELDS = 64, 24
REFERENCE, PLAIN = "reference", "plain"
DISCONNECT, SLOW_READER, BEYOND_WINDOW = "disconnect", "slow-reader", "beyond-window"
BURST, SLOW_TOOLS, RETRIES, GIANT_SCHEMAS = "burst", "slow-tools", "retries", "giant-tools"
UNHAPPY = (DISCONNECT, SLOW_READER, BEYOND_WINDOW, BURST, SLOW_TOOLS, RETRIES, GIANT_SCHEMAS)
TEXT = (
    "the of and to in is that for it as was with be by on not he his but at are this have from or "
    "had an they which one you were all her she there would their we him been has when who will "
    "no more if out so up said what its about than into them can only other time new some could "
    "these two may first then do any like my now over such our man me even most made after also"
)
WORDS = TEXT.split()

Message = dict[str, Any]
Body = dict[str, Any]
Unit = TypeVar("Unit")


class Reference(Generic[Unit]):
    """Prompts of the reference workload in units, which are words or token ids; `per_token` of them
    make a token. All runs share the system prompt; the rest is new in each, so that no run finds
    in a cache what an earlier one left there, and of the same length.
    """

    def __init__(self, units: Sequence[Unit], run: str) -> None:
        self._units = units
        self.chance = random.Random(run)
        self.per_token = 1.0

    def part(self, tokens: int, chance: random.Random | None = None) -> list[Unit]:
        count = max(1, round(tokens * self.per_token))
        return (chance or self.chance).choices(self._units, k=count)

    def system(self) -> list[Unit]:
        return self.part(SYSTEM_TOKENS, random.Random(HEAD_SEED))

    def first(self) -> list[Unit]:
        """Context and question of an agent's first turn."""
        return self.part(CONTEXT_TOKENS + QUESTION_TOKENS)


class LoadPrompts:
    """Bodies of chats, which all have some `fields`. Answers in them are ours, so that prompts do
    not depend on what a server says, nor on when.
    """

    def __init__(self, fields: Body, run: str) -> None:
        self._fields = fields
        self._reference = Reference(WORDS, run)

    def calibration(self) -> Body:
        """A request of a known number of words."""
        return self.body([_user(self._text(CALIBRATION_WORDS))], max_tokens=1)

    def calibrate(self, prompt_tokens: int) -> None:
        """Learn the size of words from the count of the request for calibration."""
        words = CALIBRATION_WORDS / max(1, prompt_tokens)
        self._reference.per_token = min(max(words, WORDS_PER_TOKEN_MIN), WORDS_PER_TOKEN_MAX)

    def body(self, messages: list[Message], **more: Any) -> Body:
        return {
            "messages": messages,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._fields,
            **more,
        }

    def agent(self) -> list[Message]:
        """An agent's first messages."""
        system = {"role": "system", "content": " ".join(self._reference.system())}
        return [system, _user(" ".join(self._reference.first()))]

    def grow(self, messages: list[Message]) -> list[Message]:
        """The same conversation with an answer and the next question."""
        said = {"role": "assistant", "content": self._text(OUTPUT_TOKENS)}
        return [*messages, said, _user(self._text(QUESTION_TOKENS))]

    def beyond(self, window: int) -> Body:
        """A word is a token at least."""
        words = self._reference.chance.choices(WORDS, k=window + 1)
        return self.body([_user(" ".join(words))])

    def with_tool(self) -> Body:
        """May call a tool."""
        return self.body(self.agent(), tools=[_tool("look_up", 1)])

    def after_tool(self, body: Body) -> Body:
        """The same once the tool has answered, whether or not the model had called it."""
        function = {"name": "look_up", "arguments": json.dumps({"field_0": "all"})}
        call = {"id": "call_1", "type": "function", "function": function}
        said = {"role": "assistant", "content": None, "tool_calls": [call]}
        told = {"role": "tool", "tool_call_id": "call_1", "content": self._text(QUESTION_TOKENS)}
        return body | {"messages": [*body["messages"], said, told]}

    def giant_tools(self) -> Body:
        tools = [_tool(f"tool_{number}", GIANT_FIELDS) for number in range(GIANT_TOOLS)]
        return self.body(self.agent(), tools=tools)

    def _text(self, tokens: int) -> str:
        return " ".join(self._reference.part(tokens))


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _tool(name: str, fields: int) -> dict[str, Any]:
    told = {"type": "string", "description": " ".join(WORDS[:16])}
    properties = {f"field_{number}": told for number in range(fields)}
    parameters = {"type": "object", "properties": properties, "required": ["field_0"]}
    function = {"name": name, "description": "Looks something up.", "parameters": parameters}
    return {"type": "function", "function": function}
