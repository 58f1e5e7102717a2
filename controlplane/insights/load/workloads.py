"""What is asked: the reference workload, whose agents' prompts grow, and the unhappy kinds."""

import json
import random
from typing import Any

from controlplane.insights.load.setup import LoadSetup

# The reference workload, in tokens.
SYSTEM_TOKENS, CONTEXT_TOKENS, QUESTION_TOKENS, OUTPUT_TOKENS = 200, 800, 25, 150
CALIBRATION_WORDS = 800
WORDS_PER_TOKEN_MIN, WORDS_PER_TOKEN_MAX = 0.1, 1.0
HEAD_SEED = 7
GIANT_TOOLS, GIANT_FIELDS = 64, 24
REFERENCE, PLAIN = "reference", "plain"
DISCONNECT, SLOW_READER, BEYOND_WINDOW = "disconnect", "slow-reader", "beyond-window"
BURST, SLOW_TOOLS, RETRIES, GIANT_SCHEMAS = "burst", "slow-tools", "retries", "giant-tools"
UNHAPPY = (DISCONNECT, SLOW_READER, BEYOND_WINDOW, BURST, SLOW_TOOLS, RETRIES, GIANT_SCHEMAS)
KINDS = (REFERENCE, PLAIN, *UNHAPPY)
TEXT = (
    "the of and to in is that for it as was with be by on not he his but at are this have from or "
    "had an they which one you were all her she there would their we him been has when who will "
    "no more if out so up said what its about than into them can only other time new some could "
    "these two may first then do any like my now over such our man me even most made after also"
)
WORDS = TEXT.split()

Message = dict[str, Any]
Body = dict[str, Any]


class LoadPrompts:
    """Bodies of requests. Texts are new in each run, so that none finds those of an earlier run in
    a cache, except the system prompt, which all share; lengths are the same in each.
    """

    def __init__(self, setup: LoadSetup, run: str) -> None:
        self._setup = setup
        self._chance = random.Random(run)
        self._words_per_token = 1.0

    def calibrate(self, prompt_tokens: int) -> None:
        """Learn the size of words from the count of the request for calibration."""
        words = CALIBRATION_WORDS / max(1, prompt_tokens)
        self._words_per_token = min(max(words, WORDS_PER_TOKEN_MIN), WORDS_PER_TOKEN_MAX)

    def calibration(self) -> Body:
        """A request of a known number of words."""
        return self.body([_user(" ".join(self._chance.choices(WORDS, k=CALIBRATION_WORDS)))], 1)

    def body(self, messages: list[Message], output: int | None = None, **more: Any) -> Body:
        return {
            "model": self._setup.model,
            "messages": messages,
            "max_tokens": output or self._setup.output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **more,
        }

    def agent(self) -> list[Message]:
        """An agent's first messages."""
        head = _text(random.Random(HEAD_SEED), self._count(SYSTEM_TOKENS))
        first = self._text(CONTEXT_TOKENS) + "\n" + self._text(QUESTION_TOKENS)
        return [{"role": "system", "content": head}, _user(first)]

    def grow(self, messages: list[Message]) -> list[Message]:
        """The same conversation with an answer and the next question. The answer is ours, so that
        prompts do not depend on what a server says, nor on when.
        """
        said = {"role": "assistant", "content": self._text(OUTPUT_TOKENS)}
        return [*messages, said, _user(self._text(QUESTION_TOKENS))]

    def beyond_window(self) -> Body:
        """A word is a token at least."""
        return self.body([_user(_text(self._chance, self._setup.window + 1))])

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

    def _count(self, tokens: int) -> int:
        return max(1, round(tokens * self._words_per_token))

    def _text(self, tokens: int) -> str:
        return _text(self._chance, self._count(tokens))


def _text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(WORDS, k=words))


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _tool(name: str, fields: int) -> dict[str, Any]:
    told = {"type": "string", "description": " ".join(WORDS[:16])}
    properties = {f"field_{number}": told for number in range(fields)}
    parameters = {"type": "object", "properties": properties, "required": ["field_0"]}
    function = {"name": name, "description": "Looks something up.", "parameters": parameters}
    return {"type": "function", "function": function}
