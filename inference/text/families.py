"""How model families write tool calls: one row a form, found by the chat template's own text.

A row says both what a grammar holds a model to (`open`, then for each call `head`, the name,
`middle`, the arguments and `tail`, with `between` calls and `close` behind the last) and how what
a model wrote is read back, with the blanks and the other spellings that models put in.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

NAME = r"([a-zA-Z0-9_-]{1,64})"
FIELD = rf'"name"\s*:\s*"{NAME}"\s*,\s*'
REFERENCES_MAX = 8


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Arguments that are not JSON but written one by one: texts as they are, all else as JSON.

    `key` matches up to the value, which is followed by `value_end`; `ends` follow the last.
    """

    key_open: str
    key_close: str
    value_close: str
    key: re.Pattern[str]
    value_end: str
    ends: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CallForm:
    """A form of calls. `marks` are patterns that its templates have, all of them.

    Without `between` an answer has one call. `said` stands before an answer that calls nothing.
    To read: a call may begin at one of the `tags`, and at one of `more` after another call;
    `header` matches from there to the arguments, `end` is behind them, and `drops` belong to
    nobody. A `bare` call has nothing but blanks before it. `untold`: where a template shows calls
    of this form but no tools, these are put before the first message of the user.
    """

    name: str
    marks: tuple[str, ...]
    open: str = ""
    head: str = ""
    middle: str
    tail: str = ""
    between: str | None = None
    close: str = ""
    said: str = ""
    pairs: Pairs | None = None
    tags: tuple[str, ...]
    more: tuple[str, ...] = ()
    header: str
    end: str = ""
    drops: tuple[str, ...] = ()
    bare: bool = False
    untold: bool = False

    @cached_property
    def header_pattern(self) -> re.Pattern[str]:
        return re.compile(self.header)

    @property
    def text(self) -> str:
        """All that stands around names and arguments."""
        pairs = self.pairs
        parts = [self.open, self.head, self.middle, self.tail, self.between or "", self.close]
        if pairs is not None:
            parts += (pairs.key_open, pairs.key_close, pairs.value_close)
        return "".join((*parts, self.said, *self.tags, *self.more, *self.drops))

    def spelled(self, name: str, arguments: str) -> str:
        """One call alone, with JSON text for its arguments."""
        parts = (self.open, self.head, name, self.middle, arguments, self.tail, self.close)
        return "".join(parts)


HERMES = CallForm(
    name="Hermes",
    marks=("<tool_call>",),
    open="<tool_call>",
    head='\n{"name": "',
    middle='", "arguments": ',
    tail="}\n</tool_call>",
    between="\n<tool_call>",
    tags=("<tool_call>",),
    header=rf'<tool_call>\s*\{{\s*{FIELD}"arguments"\s*:\s*(?=\{{)',
    end="</tool_call>",
)
QWEN_XML = CallForm(
    name="Qwen3-Coder",
    marks=("<tool_call>", "<function=", "<parameter="),
    open="<tool_call>",
    head="\n<function=",
    middle=">\n",
    tail="</function>\n</tool_call>",
    between="\n<tool_call>",
    pairs=Pairs(
        key_open="<parameter=",
        key_close=">\n",
        value_close="\n</parameter>\n",
        key=re.compile(r"<parameter=([^<>\n]+)>\n?"),
        value_end="</parameter>",
        ends=("</function>", "</tool_call>"),
    ),
    tags=("<tool_call>",),
    header=rf"<tool_call>\s*<function={NAME}>",
    end="</tool_call>",
)
GLM = CallForm(
    name="GLM-4.5",
    marks=("<tool_call>", "<arg_key>"),
    open="<tool_call>",
    middle="\n",
    tail="</tool_call>",
    between="\n<tool_call>",
    pairs=Pairs(
        key_open="<arg_key>",
        key_close="</arg_key>\n<arg_value>",
        value_close="</arg_value>\n",
        key=re.compile(r"<arg_key>([^<>\n]+)</arg_key>\s*<arg_value>"),
        value_end="</arg_value>",
        ends=("</tool_call>",),
    ),
    tags=("<tool_call>",),
    header=rf"<tool_call>\s*{NAME}\s*(?=<arg_key>|</tool_call>)",
    end="</tool_call>",
)
LLAMA = CallForm(
    name="Llama 3",
    marks=(r'\{\\?"name\\?": function name, \\?"parameters\\?"',),
    head='{"name": "',
    middle='", "parameters": ',
    tail="}",
    tags=("<|python_tag|>", "{"),
    more=(";",),
    header=r"(?:<\|python_tag\|>|;)?\s*\{\s*(?:\"type\"\s*:\s*\"function\"\s*,\s*)?"
    rf'{FIELD}"parameters"\s*:\s*(?=\{{)',
    end="}",
    bare=True,
)
# Its templates know nothing of tools.
GEMMA = replace(LLAMA, name="Gemma", marks=("<start_of_turn>",), untold=True)
MISTRAL = CallForm(
    name="Mistral",
    marks=(r"\[TOOL_CALLS\]",),
    open="[TOOL_CALLS][",
    head='{"name": "',
    middle='", "arguments": ',
    tail="}",
    between=", ",
    close="]",
    tags=("[TOOL_CALLS]",),
    more=(",",),
    header=rf'(?:\[TOOL_CALLS\]\s*\[?|,)\s*\{{\s*{FIELD}"arguments"\s*:\s*(?=\{{)',
    end="}",
    drops=("]",),
)
MISTRAL_SPACED = replace(MISTRAL, marks=(r"\[TOOL_CALLS\] \[",), open="[TOOL_CALLS] [")
MISTRAL_NAMED = CallForm(
    name="Mistral, by name",
    marks=(r"\[TOOL_CALLS\]", r"\[ARGS\]"),
    open="[TOOL_CALLS]",
    middle="[ARGS]",
    between="[TOOL_CALLS]",
    tags=("[TOOL_CALLS]",),
    header=rf"\[TOOL_CALLS\]\s*{NAME}\s*(?:\[CALL_ID\]\w{{0,64}})?(?:\[ARGS\])?\s*(?=\{{)",
    drops=("[CALL_ID]",),
)
DEEPSEEK = CallForm(
    name="DeepSeek V3, R1",
    marks=("<｜tool▁call▁begin｜>", "```json"),
    open="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
    head="function<｜tool▁sep｜>",
    middle="\n```json\n",
    tail="\n```<｜tool▁call▁end｜>",
    between="\n<｜tool▁call▁begin｜>",
    close="<｜tool▁calls▁end｜>",
    tags=("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
    header=r"(?:<｜tool▁calls▁begin｜>)?\s*<｜tool▁call▁begin｜>\s*function\s*<｜tool▁sep｜>"
    rf"{NAME}\s*```json\s*(?=\{{)",
    end="<｜tool▁call▁end｜>",
    drops=("<｜tool▁calls▁end｜>",),
    untold=True,
)
DEEPSEEK_PLAIN = replace(
    DEEPSEEK,
    name="DeepSeek V3.1",
    marks=("<｜tool▁call▁begin｜>",),
    head="",
    middle="<｜tool▁sep｜>",
    tail="<｜tool▁call▁end｜>",
    between="<｜tool▁call▁begin｜>",
    header=r"(?:<｜tool▁calls▁begin｜>)?\s*<｜tool▁call▁begin｜>\s*"
    rf"{NAME}\s*<｜tool▁sep｜>\s*(?=\{{)",
)
HARMONY = CallForm(
    name="gpt-oss",
    marks=(r"<\|channel\|>", r"<\|message\|>", r"functions\."),
    open="<|channel|>commentary to=functions.",
    middle=" <|constrain|>json<|message|>",
    said="<|channel|>final<|message|>",
    tags=("<|channel|>",),
    header=rf"<\|channel\|>commentary to=functions\.{NAME} "
    r"<\|constrain\|>json<\|message\|>\s*(?=\{)",
)
# The first whose marks are all there.
FORMS = (
    HARMONY, DEEPSEEK, DEEPSEEK_PLAIN, MISTRAL_NAMED, MISTRAL_SPACED, MISTRAL, GLM, QWEN_XML,
    HERMES, LLAMA, GEMMA,
)  # fmt: skip


def form_of(template: str) -> CallForm | None:
    """The form of calls that a template's text shows."""
    shown = (form for form in FORMS if all(re.search(mark, template) for mark in form.marks))
    return next(shown, None)


def resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a schema refers to within `root`, or itself; empty where that is no object."""
    for _ in range(REFERENCES_MAX):
        if not isinstance(schema, dict):
            return {}
        if "$ref" not in schema:
            return schema
        path, schema = str(schema["$ref"]).removeprefix("#/").split("/"), root
        for part in path:
            schema = schema.get(part) if isinstance(schema, dict) else None
    return {}


def is_text(schema: Any, root: Mapping[str, Any]) -> bool:
    """Whether a property of arguments can be nothing but a text; `root` has what it refers to."""
    found = resolved(schema, root)
    values = [found["const"]] if "const" in found else found.get("enum")
    if isinstance(values, list) and "type" not in found:
        return bool(values) and all(isinstance(each, str) for each in values)
    return found.get("type") == "string"
