"""The grammar that holds a model to a form of tool calls (`inference/text/families.py`).

Of calls all but names and arguments is fixed; `s6_finish/tools.py` reads back what comes.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from controlplane.gateway.refusal import bad_field
from inference.contract.grammar import JSON_WHITESPACE
from inference.text.families import HERMES, CallForm, Pairs, is_text, resolved

# Of llguidance: a rule is as short as it can be, and stands before all that could match as well.
LAZY = "[lazy]"
ANY_TEXT = r"/(.|\n)*/"
# Where a call begins with a brace, no other text does.
BARE_TEXT = r"/([ \n\r\t]*[^{ \n\r\t](.|\n)*)?/"
NO_NAMES: Mapping[str, int] = {}
# What may be said of arguments that are written one by one.
OF_PAIRS = frozenset({
    "$comment", "$defs", "$id", "$schema", "additionalProperties", "default", "definitions",
    "description", "examples", "properties", "required", "strict", "title", "type",
})  # fmt: skip


class WantedCalls(msgspec.Struct, frozen=True):
    """What may be called, by name with the JSON schema of arguments, and what may come instead.

    Free text may come before a call, after one nothing but calls. `content` is a rule in place of
    free text, where that has to match something itself.
    """

    functions: dict[str, Mapping[str, Any]]
    must_call: bool
    many: bool
    content: str | None = None


def calls_grammar(
    wanted: WantedCalls, form: CallForm = HERMES, names: Mapping[str, int] = NO_NAMES
) -> str:
    """Lark source. `names` are tokens that have to be written as such. Raises `Refusal` (400) for a
    schema of arguments that the form cannot hold.
    """
    tag = _spelled(form.open, names)
    said = f"{_spelled(form.said, names)} " if form.said else ""
    more = f" more {_spelled(form.close, names)}".rstrip()
    rules: list[str] = []
    if wanted.must_call:
        start = f"{tag} call{more}"
    elif wanted.content is not None:
        start = f"{said}content | {tag} call{more}"
        rules.append(f"content: {wanted.content}")
    elif form.said or form.bare:
        start = f"{said}TEXT | {tag} call{more}"
        rules.append(f"TEXT: {BARE_TEXT if form.bare else ANY_TEXT}")
    else:
        start = f"TEXT | open call{more}" + ("" if tag[0] == '"' else f" | TEXT? {tag} call{more}")
        rules += (f"open{LAZY}: TEXT {_text(form.open)}", f"TEXT: {ANY_TEXT}")
    between = _spelled(form.between or "", names)
    rules.append(f"more: ({between} call)*" if wanted.many and form.between else "more:")
    rules.append("call: " + " | ".join(f"call_{place}" for place in range(len(wanted.functions))))
    for place, (name, schema) in enumerate(wanted.functions.items()):
        head = _spelled(form.head + name + form.middle, names)
        rules.append(f"call_{place}: {head} arguments_{place} {_spelled(form.tail, names)}")
        if form.pairs is None:
            rules.append(f"arguments_{place}: {json_rule(schema, JSON_WHITESPACE)}")
        else:
            try:
                rules += _pair_rules(str(place), schema, form.pairs, names, form.name)
            except TypeError as error:
                problem = f"the parameters of '{name}' are not a JSON schema"
                raise bad_field("tools", f"'tools': {problem}.") from error
    return "\n".join([f"start: {start}", *rules])


def choice_grammar(choices: Sequence[str]) -> str:
    """Lark source: one of these texts."""
    return "start: " + " | ".join(map(_text, choices))


def json_rule(schema: Mapping[str, Any], whitespace: str) -> str:
    """The rule that JSON text matches when it validates."""
    return "%json " + _text({**schema, "x-guidance": {"whitespace_pattern": whitespace}})


def _pair_rules(
    place: str, schema: Mapping[str, Any], pairs: Pairs, names: Mapping[str, int], form: str
) -> list[str]:
    """Properties in the order of their schema, each at most once; without any what comes."""
    if foreign := sorted(schema.keys() - OF_PAIRS):
        message = f"'tools': '{foreign[0]}' of parameters cannot be held in the form of {form}."
        raise bad_field("tools", message, "unsupported_parameter")
    required, rules, parts = schema.get("required", ()), list[str](), list[str]()
    properties = {**dict.fromkeys(required), **schema.get("properties", {})}
    defined = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    for number, (name, each) in enumerate(properties.items()):
        rule = f"p_{place}_{number}"
        parts.append(rule if name in required else f"{rule}?")
        key = _spelled(pairs.key_open + name + pairs.key_close, names)
        value = each if isinstance(each, dict) else {}
        if is_text(value, schema):
            rules += _text_rules(rule, key, resolved(value, schema), pairs, names)
        else:
            held = json_rule({**defined, **value}, JSON_WHITESPACE)
            rules.append(f"{rule}: {key} {rule}_v {_spelled(pairs.value_close, names)}")
            rules.append(f"{rule}_v: {held}")
    if not properties and schema.get("additionalProperties", True) is not False:
        rule = f"p_{place}_any"
        parts.append(f"{rule}*")
        key = f"{_spelled(pairs.key_open, names)} KEY_{place} {_spelled(pairs.key_close, names)}"
        rules += (*_text_rules(rule, key, {}, pairs, names), rf"KEY_{place}: /[^<>\n]{{1,64}}/")
    return [f"arguments_{place}: {' '.join(parts)}", *rules]


def _text_rules(
    rule: str, key: str, schema: Mapping[str, Any], pairs: Pairs, names: Mapping[str, int]
) -> list[str]:
    """A text as it is; of its schema a format is not held."""
    close = _spelled(pairs.value_close, names)
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if choices:
        one = " | ".join(_text(each) for each in choices if isinstance(each, str))
        return [f"{rule}: {key} ({one}) {close}"]
    least, most = schema.get("minLength", 0), schema.get("maxLength", "")
    body = rf"/(.|\n){{{least},{most}}}/"
    if "pattern" in schema:
        pattern = re.sub(r"(?<!\\)/", r"\\/", schema["pattern"])
        before, after = (
            "" if anchored else r"(.|\n)*" for anchored in (pattern[:1] == "^", pattern[-1:] == "$")
        )
        body = f"/{before}({pattern.removeprefix('^').removesuffix('$')}){after}/"
    value, token = rule.upper(), close.find("<[")
    if token >= 0:
        # A text takes in all that is before the token.
        return [f"{rule}: {key} {value} {close[token:]}", f"{value}: {body}"]
    lazy = f"{rule}_v{LAZY}: {value} {close}"
    return [f"{rule}: {key} {rule}_v", lazy, f"{value}: {body}"]


def _spelled(text: str, names: Mapping[str, int]) -> str:
    """Lark for a text in which some names are tokens, which their letters are not."""
    either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    parts = filter(None, re.split(f"({either})", text) if names else [text])
    return " ".join(f"<[{names[part]}]>" if part in names else _text(part) for part in parts)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
