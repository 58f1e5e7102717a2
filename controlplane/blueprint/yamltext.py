"""YAML to plain values with the line of each, strictly: no aliases, tags, repeats, guessed types.

`true` and `false` are the only booleans, so that a mode called `off` stays a word; dates are texts.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml
from django.core.exceptions import ValidationError

TEXT_CHARS_MAX = 1_000_000
DEPTH_MAX = 32
WHOLE = "document"
_STEP = re.compile(r"(.*?)(?:\.[^.\[\]]+|\[\d+\])\Z", re.DOTALL)
# Escapes can spell them, and the database takes neither: NUL, and halves of a surrogate pair.
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")

Lines = dict[str, int]


class _Loader(yaml.SafeLoader):
    """Safe, and with the few implicit types that JSON has: `off`, `19:00` and dates are texts."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"\A(?:~|null|)\Z", ["~", "n", ""]),
    ("bool", r"\A(?:true|false)\Z", list("tf")),
    ("int", r"\A[-+]?(?:0|[1-9][0-9]{0,18})\Z", list("-+0123456789")),
    ("float", r"\A[-+]?[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?\Z", list("-+0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


class _Dumper(yaml.SafeDumper):
    """Never writes an alias, which the loader would refuse."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def read_yaml(text: str) -> tuple[Any, Lines]:
    """The value, and the line of each path (`models[0].name`); raises ValidationError."""
    if len(text) > TEXT_CHARS_MAX:
        raise ValidationError({WHOLE: f"Must have at most {TEXT_CHARS_MAX:,} characters."})
    try:
        return _read(text)
    except yaml.YAMLError as error:
        raise ValidationError({WHOLE: f"Invalid YAML: {_told(error)}."}) from error
    except RecursionError as error:
        raise ValidationError({WHOLE: f"Nests deeper than {DEPTH_MAX} levels."}) from error


def _read(text: str) -> tuple[Any, Lines]:
    loader = _Loader(text)
    try:
        _refuse_tricks(text)
        node = loader.get_single_node()
        if node is None:
            raise ValidationError({WHOLE: "Is empty."})
        lines = dict(_lines(node, "", DEPTH_MAX))
        return loader.construct_document(node), lines
    finally:
        loader.dispose()


def write_yaml(value: Any) -> str:
    """The value as YAML, fields in their own order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def line_of(path: str, lines: Lines) -> int | None:
    """The line of a path, or of the nearest thing around it."""
    while path:
        if path in lines:
            return lines[path]
        found = _STEP.match(path)
        path = found[1] if found else ""
    return None


def _refuse_tricks(text: str) -> None:
    """A few aliases can stand for more than fits any memory; tags make what is no plain value."""
    for event in yaml.parse(text, Loader=_Loader):
        mark = event.start_mark
        where = f"(line {mark.line + 1})" if mark else ""
        if isinstance(event, yaml.AliasEvent):
            raise ValidationError({WHOLE: f"Aliases are not supported: '*{event.anchor}'."})
        if getattr(event, "tag", None) is not None:
            raise ValidationError({WHOLE: f"Tags are not supported {where}."})
        if isinstance(event, yaml.ScalarEvent) and _UNSTORABLE.search(event.value):
            raise ValidationError({WHOLE: f"Contains an invalid character {where}."})


def _lines(node: yaml.Node, path: str, depth: int) -> Iterator[tuple[str, int]]:
    line = node.start_mark.line + 1
    yield path, line
    if not depth:
        raise ValidationError({path: f"Nests deeper than {DEPTH_MAX} levels (line {line})."})
    if isinstance(node, yaml.SequenceNode):
        for place, each in enumerate(node.value):
            yield from _lines(each, f"{path}[{place}]", depth - 1)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for name, each in node.value:
            if not isinstance(name, yaml.ScalarNode):
                raise ValidationError({path or WHOLE: f"A key is not a string (line {line})."})
            at = f"{path}.{name.value}".lstrip(".")
            if name.value in seen:
                told = f"Duplicate key (line {name.start_mark.line + 1})."
                raise ValidationError({at: told})
            seen.add(name.value)
            yield from _lines(each, at, depth - 1)


def _told(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "cannot be read"
    return f"{problem} (line {mark.line + 1})" if mark else str(problem)
