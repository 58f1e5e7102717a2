"""The decoder's complaints in words that an API user reads: what the field must be, and what it is.

It only translates; which field is at fault is found in `parse.py`.
"""

import re

_TYPES = {
    "int": "an integer", "float": "a number", "str": "a string", "bool": "true or false",
    "array": "a list", "object": "an object", "null": "null",
}  # fmt: skip
_GIVEN = {**_TYPES, "bool": "a boolean", "float": "a number with a fraction"}
_BOUND = re.compile(r"^Expected `(?:int|float)` (?P<sign><=|>=) (?P<bound>\S+)$")
_LENGTH = re.compile(r"^Expected `(?P<type>\w+)` of length (?P<sign><=|>=) (?P<bound>\d+)$")
_TYPE = re.compile(r"^Expected `(?P<wanted>[^`]+)`, got `(?P<given>\w+)`$")
# Not `$`, before which a line end may stand.
NAME_PATTERN = r"^[a-zA-Z0-9_-]{1,64}\Z"
_PATTERNS = {repr(NAME_PATTERN): "must be 1 to 64 letters, digits, '_' or '-'"}
_PATTERN = re.compile(r"^Expected `str` matching regex (?P<pattern>'.*')$")
_VALUE = re.compile(r"^Invalid (?:enum )?value (?P<value>.*)$", re.DOTALL)
_SIGNS = {"<=": "at most", ">=": "at least"}
_UNITS = {"str": "character", "array": "item", "object": "entry"}


def in_words(complaint: str) -> str:
    """The rule that a value breaks, as the end of a sentence that names the field."""
    if found := _BOUND.match(complaint):
        return f"must be {_SIGNS[found['sign']]} {found['bound'].removesuffix('.0')}"
    if found := _LENGTH.match(complaint):
        return f"must have {_SIGNS[found['sign']]} {_counted(found['bound'], found['type'])}"
    if found := _TYPE.match(complaint):
        wanted = [each for each in found["wanted"].split(" | ") if each != "null"]
        needed = " or ".join(_TYPES.get(each, each) for each in wanted)
        given = _GIVEN.get(found["given"], found["given"])
        return f"must be {needed}, not {given}"
    if found := _PATTERN.match(complaint):
        return _PATTERNS[found["pattern"]]
    if found := _VALUE.match(complaint):
        return f"does not accept the value {found['value']}"
    return f"is not valid ({complaint})"


def _counted(number: str, kind: str) -> str:
    unit = _UNITS.get(kind, "item")
    plural = "entries" if unit == "entry" else unit + "s"
    return f"{number} {unit if number == '1' else plural}"
