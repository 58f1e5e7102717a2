"""The form of a draft: its rules as fields that the server makes from JSON, and JSON from them.

Every button posts the whole form and gets it back changed, nothing saved. Rules that are not being
edited travel as JSON, so that the fields of a form stay few however many rules there are. What
someone typed in place of a number stays text, for `read_rules` to refuse at its field.
"""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.http import QueryDict

from controlplane.kernel.rules import RULES_MAX, STEPS_MAX, TARGETS_MAX
from controlplane.routing.rulesjson import read_rules, read_rules_text, write_rules

Plain = dict[str, Any]
# Fields by how they are typed. Lists have commas; a value with odd characters is quoted.
LISTS = ("aliases", "tags", "organizations", "projects")
BOXES = ("tasks", "priorities")
SIZES = ("prompt_tokens_min", "prompt_tokens_max")
NUMBERS = ("priority", "deadline_s", "first_token_s", "degrade_order")
FLAGS = ("continues_lost", "widen", "on_too_long", "on_content_filter")
CHILDREN = ("steps", "targets")
ROOM = (RULES_MAX, STEPS_MAX, TARGETS_MAX)
VERBS = ("open", "close", "add", "remove", "up", "down")
_ACT = re.compile(rf"({'|'.join(VERBS)})-((?:\d{{1,3}}(?:-\d{{1,3}}){{0,2}})?)")
_NUMBER_CHARS_MAX = 30
_VALUE = re.compile(r'\s*("(?:[^"\\]|\\.)*"(?=\s*(?:,|\Z))|[^,]*)\s*(?:,|\Z)')


@dataclass
class FormRule:
    """A rule as JSON would have it; while it is `open`, its fields are in the form."""

    rule: Plain
    open: bool = False


def form_of(rules: Iterable[Plain]) -> list[FormRule]:
    return [FormRule(rule) for rule in rules]


def form_read(post: QueryDict) -> list[FormRule]:
    """The rules of a form; raises ValidationError where one that travels as JSON was broken."""
    found: list[FormRule] = []
    while len(found) <= RULES_MAX:
        at = f"rule-{len(found)}"
        if f"{at}-json" in post:
            found.append(FormRule(_closed(_typed(post, f"{at}-json"))))
        elif f"{at}-name" in post:
            found.append(FormRule(_open(post, at), open=True))
        else:
            break
    return found


def form_act(rules: list[FormRule], act: str) -> str:
    """Do what a button says, `up-2-0`: the id of what is to be focused; none for no such button.

    Numbers are the places of a rule, its step, its target; `add` names what they are added to.
    """
    found = _ACT.fullmatch(act)
    if found is None:
        return ""
    verb, path = found[1], [int(place) for place in found[2].split("-") if place]
    try:
        return _done(rules, verb, path)
    except (IndexError, KeyError):
        return ""


def listed_text(values: Iterable[str]) -> str:
    """Values as someone types them: `chat, "a, b"`."""
    return ", ".join(each if _is_plain(each) else json.dumps(each) for each in sorted(values))


def listed_values(text: str) -> list[str]:
    words = (found[1].strip() for found in _VALUE.finditer(text))
    return [_unquoted(word) for word in words if word]


def _done(rules: list[FormRule], verb: str, path: list[int]) -> str:
    if verb == "add":
        return _added(rules, path)
    if verb in ("open", "close") and len(path) == 1:
        _open_only(rules, rules[path[0]] if verb == "open" else None)
        return name_of(path) if rules[path[0]].open else f"open-{path[0]}"
    siblings, place = _siblings(rules, path[:-1]), path[-1]
    here = "-".join(map(str, path))
    if verb == "remove":
        del siblings[place]
        return f"add-{'-'.join(map(str, path[:-1]))}"
    if verb in ("up", "down"):
        other = place + (1 if verb == "down" else -1)
        if siblings[place] is siblings[-1 if verb == "down" else 0]:
            return f"{verb}-{here}"
        siblings[place], siblings[other] = siblings[other], siblings[place]
        return "-".join([verb, *map(str, [*path[:-1], other])])
    return ""


def _added(rules: list[FormRule], path: list[int]) -> str:
    siblings = _siblings(rules, path)
    if len(siblings) < ROOM[len(path)]:
        siblings.append(_blank(len(path)))
    if not path:
        _open_only(rules, rules[-1])
    return name_of([*path, len(siblings) - 1])


def _blank(depth: int) -> Any:
    target: Plain = {"model": ""}
    step: Plain = {"targets": [target]}
    return (FormRule({"name": "", "steps": [step]}), step, target)[depth]


def _siblings(rules: list[FormRule], path: list[int]) -> list[Any]:
    """The rules, or the steps or targets of what is at this path."""
    if not path:
        return rules
    found: Any = rules[path[0]].rule
    for place, kind in zip(path[1:], CHILDREN, strict=False):
        found = found[kind][place]
    siblings: list[Any] = found[CHILDREN[len(path) - 1]]
    return siblings


def _open_only(rules: list[FormRule], chosen: FormRule | None) -> None:
    """Close all others; one that cannot be read stays, with what is wrong in it."""
    for each in rules:
        each.open = each is chosen or (each.open and not _readable(each.rule))


def _readable(rule: Plain) -> bool:
    try:
        return bool(read_rules([rule]))
    except ValidationError:
        return False


def name_of(path: Iterable[int]) -> str:
    """How fields at a path are named: `rule-3-steps-1-targets-0`."""
    kinds = ("rule", *CHILDREN)
    return "-".join(f"{kind}-{place}" for kind, place in zip(kinds, path, strict=False))


def _closed(text: str) -> Plain:
    return write_rules(read_rules([read_rules_text(text)]))[0]


def _open(post: QueryDict, at: str) -> Plain:
    match: Plain = {name: listed_values(_typed(post, f"{at}-{name}")) for name in LISTS}
    match["tasks"] = post.getlist(f"{at}-tasks")
    match["priorities"] = [_number(str(each)) for each in post.getlist(f"{at}-priorities")]
    match |= {name: _number(_typed(post, f"{at}-{name}")) for name in SIZES}
    rule: Plain = {"match": {name: each for name, each in match.items() if each not in ("", [])}}
    rule |= {name: _number(_typed(post, f"{at}-{name}")) for name in NUMBERS}
    rule |= {name: True for name in FLAGS if f"{at}-{name}" in post}
    rule["shadow_class"] = _typed(post, f"{at}-shadow_class")
    kept = {name: each for name, each in rule.items() if each not in ("", {})}
    return {"name": _typed(post, f"{at}-name"), **kept, "steps": _steps(post, at)}


def _steps(post: QueryDict, at: str) -> list[Plain]:
    found: list[Plain] = []
    while (here := f"{at}-steps-{len(found)}") + "-queue_s" in post:
        targets: list[Plain] = []
        while (each := f"{here}-targets-{len(targets)}") + "-model" in post:
            fields = {
                "model": _typed(post, f"{each}-model"),
                "pool": _typed(post, f"{each}-pool"),
                "weight": _number(_typed(post, f"{each}-weight")),
                "size_class": _typed(post, f"{each}-size_class"),
            }
            pairs = fields.items()
            targets.append({name: one for name, one in pairs if one != "" or name == "model"})
        queue_s = _number(_typed(post, f"{here}-queue_s"))
        found.append({"targets": targets, **({} if queue_s == "" else {"queue_s": queue_s})})
    return found


def _typed(post: QueryDict, name: str) -> str:
    return str(post.get(name, ""))


def _number(text: str) -> int | float | str:
    """A number as JSON would have it; what is none stays as it was typed."""
    text = text.strip()
    if len(text) > _NUMBER_CHARS_MAX or not text.isascii():
        return text
    for read in (int, float):
        try:
            value = read(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else text
    return text


def _is_plain(value: str) -> bool:
    clean = value.isprintable() and value == value.strip()
    return bool(value) and clean and not set(value) & set(',"')


def _unquoted(word: str) -> str:
    try:
        return str(json.loads(word)) if word.startswith('"') else word
    except ValueError:
        return word
