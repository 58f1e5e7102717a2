"""Render chat messages to one prompt text with the model's own Jinja template.

A template comes from a node. It is not reviewed: what protects is that a node needs a credential
that names its models, and that its template runs in a sandbox with bounded steps, time and sizes.
Besides plain Jinja it offers what published templates use: `raise_exception`, break and continue,
`{% generation %}`, `strftime_now`, which gives only the day, and a `tojson` that writes JSON and
no HTML.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from jinja2 import TemplateError, meta, nodes

from inference.text.allowance import Rendering
from inference.text.families import form_of
from inference.text.flow import only_prints
from inference.text.frames import NO_VARIABLES, Frames
from inference.text.sandbox import BoundedEnvironment
from inference.text.turns import TurnShape, find_shape, told

PROMPT_CHARS_MAX = 16 * 1024 * 1024
TOO_LONG = f"over {PROMPT_CHARS_MAX} characters of prompt"
TEMPLATE_CHARS_MAX = 128 * 1024
# What every rendering is given; all other names that a template reads, a request may give.
GIVEN = frozenset({
    "messages", "tools", "xml_tools", "add_generation_prompt", "bos_token", "eos_token",
})  # fmt: skip
# SmolLM3's templates know the tools by the second name.
TOOLS = frozenset({"tools", "xml_tools"})
PLAIN_FIELDS = frozenset({"role", "content", "reasoning_content"})
# What the expressions of a template can raise besides Jinja's own errors.
TEMPLATE_FAULTS = (
    TemplateError, ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip


class TemplateFailed(ValueError):
    """The template refused these messages, or is not a template."""


class ChatMessage(TypedDict):
    """One message as templates read it."""

    role: str
    content: str
    tool_calls: NotRequired[list[dict[str, Any]]]
    tool_call_id: NotRequired[str]
    reasoning_content: NotRequired[str]


class ChatTemplate:
    """`variables` are the names that a request may give values; `form` is that of its calls."""

    def __init__(self, source: str, *, bos_token: str, eos_token: str) -> None:
        if len(source) > TEMPLATE_CHARS_MAX:
            raise TemplateFailed(f"chat_template: over {TEMPLATE_CHARS_MAX} characters")
        environment = BoundedEnvironment()
        try:
            self._template = environment.bounded(source)
        except (TemplateError, RecursionError, SyntaxError) as error:
            raise TemplateFailed(f"chat_template: {error}") from error
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        # Looking for names changes the tree, so each search gets one of its own.
        parse = BoundedEnvironment().parse
        tree = parse(source)
        names = meta.find_undeclared_variables(tree)
        self.form = form_of(source)
        self._untold = TOOLS.isdisjoint(names)
        self.shows_tools = self.form is not None and (self.form.untold or not self._untold)
        self.shows_reasoning = "reasoning_content" in source
        self.variables = frozenset(names.difference(GIVEN, environment.globals))
        # One that the template sets itself could be more than `flow.py` sees.
        self._unset = self.variables - {
            each.name for each in tree.find_all(nodes.Name) if each.ctx != "load"
        }
        self.frames = Frames(self._rendered) if only_prints(parse(source)) else None
        shape = find_shape(self._tried) if "tool_calls" in source else None
        self._plain = shape is None
        self._shape = shape or TurnShape()

    def render(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> str:
        """The prompt up to where the assistant begins to speak; raises `TemplateFailed`.

        Those of the `variables` that the template does not read are left out.
        """
        if variables:
            read = self.variables
            variables = {name: each for name, each in variables.items() if name in read}
        if self.frames is not None and not tools and variables.keys() <= self._unset:
            prompt = self.frames.filled(messages, variables)
            if prompt is not None:
                if len(prompt) > PROMPT_CHARS_MAX:
                    raise TemplateFailed(f"messages: {TOO_LONG}")
                return prompt
        return self._rendered(self._shaped(messages, tools), variables, tools)

    def _shaped(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> Sequence[Mapping[str, Any]]:
        if not tools and all(message.keys() <= PLAIN_FIELDS for message in messages):
            return messages
        if self.form is not None and self.form.untold and self._untold and messages:
            messages = told(messages, tools, self.form, plain=self._plain)
        return [self._shape.applied(message) for message in messages]

    def _tried(self, messages: Sequence[Mapping[str, Any]]) -> str | None:
        try:
            return self._rendered(messages)
        except TemplateFailed:
            return None

    def _rendered(
        self,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any] = NO_VARIABLES,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        given = {**variables, "messages": messages, **dict.fromkeys(TOOLS, list(tools) or None)}
        given |= {"add_generation_prompt": True, **self._tokens}
        parts, room = [], PROMPT_CHARS_MAX
        try:
            with Rendering():
                for part in self._template.generate(**given):
                    parts.append(part)
                    room -= len(part)
                    if room < 0:
                        raise TemplateError(TOO_LONG)
        except TEMPLATE_FAULTS as error:
            raise TemplateFailed(f"messages: {error}") from error
        return "".join(parts)
