"""Small chat templates of our own, one for each family's markers and structure, and what a model of
the family writes when it calls.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer

from inference.text import families
from inference.text.families import CallForm

SHOWN = "{% if tools %}Tools:{% for t in tools %}\n{{ t | tojson }}{% endfor %}{% endif %}"
TURNS = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}CALL{% endfor %}<|end|>{% endfor %}<|assistant|>"
)
JSON_CALL = '{"name": "{{ c.function.name }}", "KEY": {{ c.function.arguments | tojson }}}'


def turns(call: str) -> str:
    return TURNS.replace("CALL", call)


@dataclass(frozen=True, kw_only=True)
class Family:
    """`special` are names of special tokens, `plain` those of added ones that are not special.

    `one` and `two` are answers that call `book` with ROME, and then `now` with nothing.
    """

    form: CallForm
    template: str
    special: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    one: str
    two: str = ""


ROME = {"city": "Rome é", "nights": 2, "tags": ["a<b", "</x>"]}
ARGUMENTS = json.dumps(ROME, ensure_ascii=False)
HERMES_CALL = '<tool_call>\n{{"name": "{}", "arguments": {}}}\n</tool_call>'
HERMES_ONE = HERMES_CALL.format("book", ARGUMENTS)
HERMES_TWO = f"{HERMES_ONE}\n{HERMES_CALL.format('now', '{}')}"
XML_CALL = (
    "{% for k, v in c.function.arguments.items() %}OPEN{{ v if v is string else v | tojson }}"
)
QWEN_ONE = (
    "<tool_call>\n<function=book>\n<parameter=city>\nRome é\n</parameter>\n<parameter=nights>\n2\n"
    '</parameter>\n<parameter=tags>\n["a<b", "</x>"]\n</parameter>\n</function>\n</tool_call>'
)
GLM_ONE = (
    "<tool_call>book\n<arg_key>city</arg_key>\n<arg_value>Rome é</arg_value>\n<arg_key>nights"
    "</arg_key>\n<arg_value>2</arg_value>\n<arg_key>tags</arg_key>\n"
    '<arg_value>["a<b", "</x>"]</arg_value>\n</tool_call>'
)
BEGIN, END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
FIRST, LAST = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
SEP = "<｜tool▁sep｜>"
DEEPSEEK_ONE = f"{BEGIN}function{SEP}book\n```json\n{ARGUMENTS}\n```{END}"
DEEPSEEK_NOW = f"{BEGIN}function{SEP}now\n```json\n{{}}\n```{END}"
DEEPSEEK_MARKS = (FIRST, BEGIN, SEP, END, LAST)
THINK = ("<think>", "</think>")

FAMILIES = {
    "qwen": Family(
        form=families.HERMES,
        template=SHOWN
        + "<tool_call>"
        + turns(f"<tool_call>\n{JSON_CALL}\n</tool_call>".replace("KEY", "arguments")),
        plain=("<tool_call>", "</tool_call>", *THINK),
        one=HERMES_ONE,
        two=HERMES_TWO,
    ),
    "smollm3": Family(
        form=families.HERMES,
        template=SHOWN.replace("tools", "xml_tools") + "Write <tool_call>." + turns(""),
        plain=THINK,
        one=HERMES_ONE,
        two=HERMES_TWO,
    ),
    "qwen3-coder": Family(
        form=families.QWEN_XML,
        template=SHOWN
        + turns(
            "<tool_call>\n<function={{ c.function.name }}>"
            + XML_CALL.replace("OPEN", "{{ '\n' }}<parameter={{ k }}>\n")
            + "\n</parameter>{% endfor %}{{ '\n' }}</function>\n</tool_call>"
        ),
        plain=("<tool_call>", "</tool_call>"),
        one=QWEN_ONE,
        two=f"{QWEN_ONE}\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
    ),
    "glm": Family(
        form=families.GLM,
        template=SHOWN
        + turns(
            "<tool_call>{{ c.function.name }}"
            + XML_CALL.replace("OPEN", "{{ '\n' }}<arg_key>{{ k }}</arg_key>\n<arg_value>")
            + "</arg_value>{% endfor %}{{ '\n' }}</tool_call>"
        ),
        plain=(
            "<tool_call>",
            "</tool_call>",
            "<arg_key>",
            "</arg_key>",
            "<arg_value>",
            "</arg_value>",
            *THINK,
        ),
        one=GLM_ONE,
        two=f"{GLM_ONE}\n<tool_call>now\n</tool_call>",
    ),
    "llama": Family(
        form=families.LLAMA,
        template=SHOWN
        + '{{ \'Answer {"name": function name, "parameters": map of arguments}.\' }}'
        + turns(JSON_CALL.replace("KEY", "parameters")),
        special=("<|python_tag|>",),
        one=f'{{"name": "book", "parameters": {ARGUMENTS}}}',
        two=f'<|python_tag|>{{"name": "book", "parameters": {ARGUMENTS}}}; '
        '{"name": "now", "parameters": {}}',
    ),
    "mistral": Family(
        form=families.MISTRAL,
        template=SHOWN
        + "{% for m in messages if m.tool_calls %}{% for c in m.tool_calls %}"
        + "{% if c.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}"
        + "{% endfor %}{% endfor %}"
        + turns(f"[TOOL_CALLS][{JSON_CALL.replace('KEY', 'arguments')}]"),
        special=("[TOOL_CALLS]",),
        plain=("[THINK]", "[/THINK]"),
        one=f'[TOOL_CALLS][{{"name": "book", "arguments": {ARGUMENTS}}}]',
        two=f'[TOOL_CALLS] [{{"name": "book", "arguments": {ARGUMENTS}, "id": "abcdefghi"}}, '
        '{"name": "now", "arguments": {}}]',
    ),
    "mistral-named": Family(
        form=families.MISTRAL_NAMED,
        template=SHOWN
        + turns("[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}"),
        special=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
        one=f"[TOOL_CALLS]book[ARGS]{ARGUMENTS}",
        two=f"[TOOL_CALLS]book[CALL_ID]abcdefghi[ARGS]{ARGUMENTS}[TOOL_CALLS]now[ARGS]{{}}",
    ),
    "deepseek": Family(
        form=families.DEEPSEEK,
        template="{% for m in messages %}<|{{ m.role }}|>{% if m.content is none %}"
        "{% for c in m.tool_calls %}" + f"{FIRST}{BEGIN}{{{{ c.type }}}}{SEP}"
        "{{ c.function.name + '\n```json\n' + c.function.arguments + '\n```' }}"
        + END
        + LAST
        + "{% endfor %}{% else %}{{ m.content }}{% endif %}<|end|>{% endfor %}<|assistant|>",
        plain=(*DEEPSEEK_MARKS, *THINK),
        one=FIRST + DEEPSEEK_ONE + LAST,
        two=f"{FIRST}{DEEPSEEK_ONE}\n{DEEPSEEK_NOW}{LAST}",
    ),
    "deepseek-v3.1": Family(
        form=families.DEEPSEEK_PLAIN,
        template=turns(
            f"{FIRST}{BEGIN}{{{{ c.function.name }}}}{SEP}{{{{ c.function.arguments }}}}{END}{LAST}"
        ),
        special=DEEPSEEK_MARKS,
        one=f"{FIRST}{BEGIN}book{SEP}{ARGUMENTS}{END}{LAST}",
        two=f"{FIRST}{BEGIN}book{SEP}{ARGUMENTS}{END}{BEGIN}now{SEP}{{}}{END}{LAST}",
    ),
    "gemma": Family(
        form=families.GEMMA,
        template="{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}<start_of_turn>{{ m.role }}\n"
        "{{ m.content | trim }}<|end|>{% endfor %}<start_of_turn>model{{ '\n' }}",
        one=f'{{"name": "book", "parameters": {ARGUMENTS}}}',
    ),
    "gpt-oss": Family(
        form=families.HARMONY,
        template=SHOWN
        + "{% for m in messages %}<|start|>{{ m.role }}{% for c in m.tool_calls or [] %}"
        " to=functions.{{ c.function.name }}<|channel|>commentary json<|message|>"
        "{{ c.function.arguments | tojson }}{% else %}<|message|>{{ m.content }}{% endfor %}<|end|>"
        "{% endfor %}<|start|>assistant",
        special=("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"),
        one=f"<|channel|>commentary to=functions.book <|constrain|>json<|message|>{ARGUMENTS}",
    ),
}
CITY = {"$ref": "#/$defs/city"}
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": CITY,
        "nights": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
    "$defs": {"city": {"type": "string", "maxLength": 20}},
}
BOOK = {"type": "function", "function": {"name": "book", "parameters": PARAMETERS}}
NOW = {"type": "function", "function": {"name": "now"}}


def add_tokens(tokenizer: Tokenizer, family: Family) -> Tokenizer:
    """The same with the family's tokens."""
    for names, special in ((family.special, True), (family.plain, False)):
        added = [AddedToken(name, special=special, normalized=False) for name in names]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(added)
    return tokenizer


def parts_of(text: str, cuts: Sequence[int]) -> list[str]:
    """A text cut at these places."""
    ends = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    return [text[begin:end] for begin, end in zip(ends, ends[1:], strict=False)]
