"""How tool calls look in a model's text: Hermes' form, which Qwen and many others write too.

<tool_call>
{"name": "find", "arguments": {"city": "Rome"}}
</tool_call>

The grammar that holds a model to it and the parser that reads it back agree here.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
HEAD = '\n{"name": "'
MIDDLE = '", "arguments": '
TAIL = "}\n" + CLOSE
BETWEEN = "\n"
# Of llguidance: a rule is as short as it can be, and stands before all that could match as well.
LAZY = "[lazy]"
ANY_TEXT = r"/(.|\n)*/"


def calls_grammar(
    functions: Mapping[str, str], *, must_call: bool, many: bool, content: str | None = None
) -> str:
    """Lark source: text or calls of these functions, by name with the JSON schema of arguments.

    Free text may come before a call, after one nothing but calls. `content` is a rule in place of
    free text, where that has to match something itself.
    """
    tag = _text(OPEN)
    if must_call:
        start = f"{tag} call more"
    elif content is None:
        start = f"TEXT | open call more\nopen{LAZY}: TEXT {tag}\nTEXT: {ANY_TEXT}"
    else:
        start = f"content | {tag} call more\ncontent: {content}"
    rules = [
        f"start: {start}",
        f"more: ({_text(BETWEEN + OPEN)} call)*" if many else "more:",
        "call: " + " | ".join(f"call_{place}" for place in range(len(functions))),
    ]
    for place, (name, schema) in enumerate(functions.items()):
        rules.append(f"call_{place}: {_text(HEAD + name + MIDDLE)} arguments_{place} {_text(TAIL)}")
        rules.append(f"arguments_{place}: {schema}")
    return "\n".join(rules)


def choice_grammar(choices: Sequence[str]) -> str:
    """Lark source: one of these texts."""
    return "start: " + " | ".join(map(_text, choices))


def json_rule(schema: Mapping[str, Any], whitespace: str) -> str:
    """The rule that JSON text matches when it validates."""
    return "%json " + _text({**schema, "x-guidance": {"whitespace_pattern": whitespace}})


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
