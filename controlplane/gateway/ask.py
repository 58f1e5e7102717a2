"""What a client asks for, whatever API shape it spoke: the edge turns requests into an `Ask`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import msgspec
from msgspec import structs

from controlplane.gateway.policies.masks import Masks
from controlplane.gateway.toolform import WantedCalls
from controlplane.kernel.prompts import PromptBody, ToolName, Value
from controlplane.kernel.rules import SizeClass
from inference.contract.capabilities import Capability
from inference.contract.frames import Sampling

Operation = Literal[
    "chat", "completion", "embedding", "rerank", "score", "tokenize", "detokenize"
]  # fmt: skip


class ToolUse(msgspec.Struct, frozen=True):
    """A call that the assistant made in an earlier turn."""

    id: str
    name: str
    arguments: dict[str, Any]


class Picture(msgspec.Struct, frozen=True):
    """A picture before the character `at` of its turn's text, where the client sent it as `field`.

    `source` is a link or a data URL. Stage 3 puts in its place the picture as the model takes it:
    JPEG, and the tokens that it becomes.
    """

    at: int
    field: str
    source: str
    detail: str | None = None
    jpeg: bytes = b""
    tokens: int = 0


class Turn(msgspec.Struct, frozen=True):
    """One message of a chat, its parts joined to one text, and the pictures between them.

    `calls` are the assistant's, `reasoning` is what it thought before; `call_id` is the call that a
    tool's message answers.
    """

    role: str
    content: str
    calls: tuple[ToolUse, ...] = ()
    call_id: str | None = None
    reasoning: str | None = None
    pictures: tuple[Picture, ...] = ()


class PromptUse(msgspec.Struct, frozen=True):
    """A stored template that a request names; without `version` the one in force."""

    name: str
    version: int | None
    values: dict[str, Value]


class StoredParts(msgspec.Struct, frozen=True):
    """What was found of all that a request names: fields that it does not say, and tools."""

    settings: Mapping[str, Any]
    tools: tuple[dict[str, Any], ...]


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
    `truncate` is as in `Ask`. Where scores are wanted, `pairs` are the places of two texts each,
    and `names` are what the client calls the texts; of a ranking it gets the best `top_n`.
    """

    texts: tuple[str, ...] = ()
    tokens: tuple[list[int], ...] = ()
    listed: bool = True
    base64: bool = False
    dimensions: int | None = None
    truncate: int | None = None
    pairs: tuple[tuple[int, int], ...] = ()
    names: Sequence[str] = ()
    top_n: int | None = None

    def __len__(self) -> int:
        return max(len(self.texts), len(self.tokens), len(self.pairs))

    @property
    def name(self) -> str:
        """What the client calls the most of them."""
        return self.names[-1].partition("[")[0] if self.names else "input"

    def field(self, place: int) -> str:
        """What the client calls one of them, for refusals."""
        if self.names:
            return self.names[place]
        return f"input[{place}]" if self.listed else "input"


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request. Exactly one of `turns`, `text`, `tokens`, `prompts` and `inputs` holds the
    prompt, or several of them, each of which gets all of its choices.

    Before `turns` go the messages of a stored template: `prompt` names it, `assembly` is what was
    found for it, and stage 3 puts them together. `stored_tools` are named in the same way, and of
    them or the template's only `stored_allowed` may be called, where that is not None. Until both
    are found the rest is not read: `again` does, with what they say. `tool_labels` are the tools'
    names and versions then.
    `output_tokens` is None when the client named no bound, `output_field` is what it calls it;
    `bytes` is the size of the body without its pictures, with what a template adds. `tools` are
    what the model may call, as chat templates read them; `grammar_field` is what the client calls
    the grammar that sampling holds, empty without one. `calls` are those of which a grammar is made
    for the model's family.
    `passed` are fields for engines that take the request itself, `ignored` the paths of those that
    change nothing, `unknown` the first of these that no API has, `echo` those that the answer
    repeats. Requests of one `cache_key` are likely to begin alike. `caps_output`: a bound beyond
    the model's is lowered to it rather than refused.
    `user` is the end user, as the client calls it, and `labels` are what it wrote on the request.
    `needs` are what nodes have to be capable of, with the fields that ask for it. Of a prompt the
    last `truncate` tokens count, -1 being what fits; `repeats_prompt` puts it before the answer.
    `continuous_usage`: in each chunk of a stream.
    `effort` is how much to think before the answer, by its `effort_field`; `variables` are the chat
    template's.
    `fallbacks` are models for when the first cannot serve it.
    `masks` are what its project has masked in it; a choice ends with the last of `calls_max` calls.
    With `shows_texts` texts come back beside numbers, with `special` a prompt gets the model's
    special tokens. `size_class` is the one that a rule with size classes has to take.
    """

    operation: Operation
    model: str
    stream: bool = False
    include_usage: bool = False
    sampling: Sampling = Sampling(max_tokens=0)
    output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    bytes: int
    turns: tuple[Turn, ...] = ()
    prompt: PromptUse | None = None
    stored_tools: tuple[ToolName, ...] = ()
    stored_allowed: frozenset[str] | None = None
    again: Callable[[StoredParts], "Ask"] | None = None
    tool_labels: tuple[str, ...] = ()
    assembly: Assembly | None = None
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    output_field: str = "max_tokens"
    inputs: Inputs | None = None
    tools: tuple[dict[str, Any], ...] = ()
    calls: WantedCalls | None = None
    grammar_field: str = ""
    passed: dict[str, Any] = {}
    shows_texts: bool = False
    special: bool = False
    ignored: tuple[str, ...] = ()
    unknown: str = ""
    cache_key: str = ""
    echo: dict[str, Any] = {}
    caps_output: bool = False
    prompts: tuple[str | list[int], ...] = ()
    needs: dict[Capability, str] = {}
    stop_tokens: tuple[int, ...] = ()
    truncate: int | None = None
    repeats_prompt: bool = False
    continuous_usage: bool = False
    effort: str | None = None
    effort_field: str = "reasoning_effort"
    variables: dict[str, Any] = {}
    user: str = ""
    labels: dict[str, str] = {}
    masks: Masks | None = None
    calls_max: int | None = None
    fallbacks: tuple[str, ...] = ()
    size_class: SizeClass | None = None

    @property
    def choices(self) -> int:
        """Of all prompts."""
        return self.sampling.n * (len(self.prompts) or 1)

    @property
    def required(self) -> dict[Capability, str]:
        """What only some nodes can do, and the field that asks for it."""
        if not self.grammar_field:
            return self.needs
        return {Capability.GRAMMAR: self.grammar_field.split(".")[0], **self.needs}

    def seeing(self) -> Self:
        """The same with what its pictures need told; itself where it has none."""
        shown = [picture for turn in self.turns for picture in turn.pictures]
        if not shown:
            return self
        size = self.bytes - sum(len(each.source) for each in shown)
        needs = {**self.needs, Capability.VISION: shown[0].field}
        return structs.replace(self, bytes=size, needs=needs)

    def changed(self, change: Callable[["Ask"], "Ask"]) -> "Ask":
        """What `change` makes of it, and so of the whole request once that is read."""
        made, again = change(self), self.again
        if again is None:
            return made
        return structs.replace(made, again=lambda stored: change(again(stored)))

    def served_by(self, model: str) -> Self:
        """The same as its answer tells of it: by the name of the model that serves."""
        return self if model == self.model else structs.replace(self, model=model)

    def singly(self) -> tuple[Self, ...]:
        """A request for each of its prompts."""
        prompts = (
            {"text": each} if isinstance(each, str) else {"tokens": tuple(each)}
            for each in self.prompts
        )
        return tuple(structs.replace(self, prompts=(), **each) for each in prompts)

    @property
    def pictures(self) -> list[Picture]:
        """All of its turns, which are searched only where it needs a model that sees."""
        if Capability.VISION not in self.needs:
            return []
        return [picture for turn in self.turns for picture in turn.pictures]

    @property
    def speaks_of_tools(self) -> bool:
        """Whether the prompt has more in it than texts that the client sent."""
        return bool(self.tools) or any(turn.calls for turn in self.turns)

    @property
    def prompt_field(self) -> str:
        """The field that holds the prompt, for refusals."""
        if self.operation == "detokenize":
            return "tokens"
        return "messages" if self.operation == "chat" or self.turns else "prompt"
