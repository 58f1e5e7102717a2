"""What a client asks for, whatever API shape it spoke: the edge turns requests into an `Ask`."""

from typing import Any, Literal

import msgspec

from controlplane.kernel.prompts import PromptBody, Value
from inference.contract.frames import Sampling

Operation = Literal["chat", "completion", "embedding"]


class ToolUse(msgspec.Struct, frozen=True):
    """A call that the assistant made in an earlier turn."""

    id: str
    name: str
    arguments: dict[str, Any]


class Turn(msgspec.Struct, frozen=True):
    """One message of a chat, its parts joined to one text.

    `calls` are the assistant's, `reasoning` is what it thought before; `call_id` is the call that a
    tool's message answers.
    """

    role: str
    content: str
    calls: tuple[ToolUse, ...] = ()
    call_id: str | None = None
    reasoning: str | None = None


class PromptUse(msgspec.Struct, frozen=True):
    """A stored template that a request names; without `version` the one in force."""

    name: str
    version: int | None
    values: dict[str, Value]


class Assembly(msgspec.Struct, frozen=True):
    """The version of a template that a request gets, and the text of each of its variables."""

    name: str
    version: int
    body: PromptBody
    values: dict[str, str]

    @property
    def label(self) -> str:
        return f"{self.name}:{self.version}"


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """What to embed, as texts or as token ids, and how the vectors are wanted.

    `dimensions` None takes the model's own; `listed` is False where the client sent a bare input.
    """

    texts: tuple[str, ...] = ()
    tokens: tuple[list[int], ...] = ()
    listed: bool
    base64: bool
    dimensions: int | None

    def __len__(self) -> int:
        return len(self.texts) or len(self.tokens)

    def field(self, place: int) -> str:
        """What the client calls one of them, for refusals."""
        return f"input[{place}]" if self.listed else "input"


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request. Exactly one of `turns`, `text`, `tokens` and `inputs` holds the prompt.

    Before `turns` go the messages of a stored template: `prompt` names it, `assembly` is what was
    found for it, and stage 3 puts them together.
    `output_tokens` is None when the client named no bound, `output_field` is what it calls it;
    `bytes` is the size of the body, with what a template adds. `tools` are what the model may call,
    as chat templates read them; `grammar_field` is what the client calls the grammar that sampling
    holds, empty without one.
    `passed` are fields for engines that take the request itself.
    """

    operation: Operation
    model: str
    stream: bool
    include_usage: bool
    sampling: Sampling
    output_tokens: int | None
    stop: tuple[str, ...]
    bytes: int
    turns: tuple[Turn, ...] = ()
    prompt: PromptUse | None = None
    assembly: Assembly | None = None
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    output_field: str = "max_tokens"
    inputs: Inputs | None = None
    tools: tuple[dict[str, Any], ...] = ()
    grammar_field: str = ""
    passed: dict[str, Any] = {}

    @property
    def speaks_of_tools(self) -> bool:
        """Whether the prompt has more in it than texts that the client sent."""
        return bool(self.tools) or any(turn.calls for turn in self.turns)

    @property
    def prompt_field(self) -> str:
        """The field that holds the prompt, for refusals."""
        return "messages" if self.operation == "chat" else "prompt"
