"""JSON to a typed request, refusing what JSON itself leaves open; and the decoder's complaints in
words that an API user reads: what the field must be, and what it is.

`json` reads the body first for what msgspec lets pass: duplicate fields, NaN and unbounded depth.
Every refusal names the field at fault.
"""

import json
import re
from typing import NoReturn, TypeVar

import msgspec

from controlplane.gateway.openai.tolerant import TOLERABLE, LeftOut, read_tolerantly
from controlplane.gateway.refusal import Refusal, bad_field
from controlplane.gateway.s1_admission.helpers.offload import is_large

DEPTH_MAX = 32
# Of large bodies: objects and lists in all, texts with the names of fields, and values of any kind.
CONTAINERS_MAX = 32_768
STRINGS_MAX = 262_144
VALUES_MAX = 262_144
# Digits of a number; more are none that a field could take.
NUMBER_CHARS_MAX = 4_300
BYTE_ORDER_MARK = "\ufeff"
NOTHING_LEFT_OUT = LeftOut()
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_DECODER_SAYS = "JSON is malformed: "
_PATH = re.compile(r" - at `(?:key` in `)?\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"missing required field `(?P<field>[^`]*)`")

Body = TypeVar("Body", bound=msgspec.Struct)
_TYPES = {
    "int": "an integer", "float": "a number", "str": "a string", "bool": "true or false",
    "array": "a list", "object": "an object", "null": "null",
}  # fmt: skip
_GIVEN = {**_TYPES, "bool": "a boolean", "float": "a number with a fraction"}
_BOUND = re.compile(r"^Expected `(?:int|float)` (?P<sign><=|>=|>) (?P<bound>\S+)$")
_LENGTH = re.compile(r"^Expected `(?P<type>\w+)` of length (?P<sign><=|>=) (?P<bound>\d+)$")
_TYPE = re.compile(r"^Expected `(?P<wanted>[^`]+)`, got `(?P<given>\w+)`$")
# Not `$`, before which a line end may stand.
NAME_PATTERN = r"^[a-zA-Z0-9_-]{1,64}\Z"
# PostgreSQL keeps no text with a zero byte.
STORED_PATTERN = r"^[^\x00]*\Z"
_PATTERNS = {
    repr(NAME_PATTERN): "must be 1 to 64 letters, digits, '_' or '-'",
    repr(STORED_PATTERN): "must not contain a zero byte",
}
_PATTERN = re.compile(r"^Expected `str` matching regex (?P<pattern>'.*')$")
_VALUE = re.compile(r"^Invalid (?:enum )?value (?P<value>.*)$", re.DOTALL)
_SIGNS = {"<=": "at most", ">=": "at least", ">": "more than"}
_UNITS = {"str": "character", "array": "item", "object": "entry"}


def parse_body(
    data: bytes, decoder: msgspec.json.Decoder[Body], *, values_max: int = VALUES_MAX
) -> tuple[Body, LeftOut]:
    """Decode and check a request body; raises `Refusal` (400) with `param` set.

    What it left out is told beside it.
    """
    large = is_large(data)
    if large:
        check_counts(data, None, values_max=values_max)
    else:
        _check_json(data, _small_decoder)
    try:
        read = _read(data, decoder)
    except msgspec.ValidationError as error:
        raise named_error(str(error)) from error
    except msgspec.DecodeError as error:
        raise _malformed(str(error)) from error
    except RecursionError as error:
        raise _too_deep() from error
    if large:
        # Only now: the typed decoder is quick to refuse a body that is large for no good reason.
        _check_json(data, _large_decoder)
    return read


def _read(data: bytes, decoder: msgspec.json.Decoder[Body]) -> tuple[Body, LeftOut]:
    try:
        return decoder.decode(data), NOTHING_LEFT_OUT
    except msgspec.ValidationError as error:
        if not TOLERABLE.search(str(error)):
            raise
    return read_tolerantly(data, decoder.type)


def check_counts(data: bytes, field: str | None, *, values_max: int = VALUES_MAX) -> None:
    """Return if few enough things would be made of it: millions hold the interpreter for seconds.

    Raises `Refusal` (400) for the field.
    """
    data = _without_escapes(data)
    strings = data.count(b'"') // 2
    containers = data.count(b"[") + data.count(b"{")
    if containers > CONTAINERS_MAX and strings <= STRINGS_MAX:
        containers = len(_opened_and_closed(data)) // 2
    values = data.count(b",")
    if values > values_max and strings <= STRINGS_MAX:
        values = _outside(data).count(b",")
    if containers > CONTAINERS_MAX or strings > STRINGS_MAX or values > values_max:
        what = f"'{field}'" if field else "The body"
        message = (
            f"{what} has more than {CONTAINERS_MAX} objects and lists, {STRINGS_MAX} names and "
            f"strings, or {values_max} values. Join messages and parts, or send fewer."
        )
        raise bad_field(field, message, "too_many_values")


def _check_json(data: bytes, decoder: json.JSONDecoder) -> None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise bad_field(None, f"The body is not valid UTF-8: {error.reason}.") from error
    try:
        parsed = _loaded(text, decoder)
    except RecursionError as error:
        raise _too_deep() from error
    except json.JSONDecodeError as error:
        raise _malformed(str(error)) from error
    except ValueError as error:
        # Python refuses to convert what is longer than `sys.get_int_max_str_digits()`.
        raise bad_field(None, "The body contains an integer with too many digits.") from error
    if not isinstance(parsed, dict):
        raise bad_field(None, "The body must be a JSON object.")
    if nests_too_deep(text):
        raise _too_deep()


def _loaded(text: str, decoder: json.JSONDecoder) -> object:
    """The body; a field given twice is searched for only once there is one."""
    try:
        # The one thing that `loads` sees and its decoder does not.
        return json.loads(text) if text.startswith(BYTE_ORDER_MARK) else decoder.decode(text)
    except _GivenTwice:
        # A field's name as it can be sent back: JSON may spell half of a surrogate pair.
        name = _path_given_twice(json.loads(text, object_pairs_hook=_Pairs)) or ""
        path = name.encode("utf-8", "replace").decode()
    raise bad_field(path, f"The field '{path}' is duplicated.")


def nests_too_deep(text: str) -> bool:
    """Whether JSON nests deeper than `DEPTH_MAX`, not counting brackets inside strings."""
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return False
    marks = _opened_and_closed(_without_escapes(text.encode("utf-8", "surrogatepass")))
    for _ in range(DEPTH_MAX):
        # The innermost level goes each time.
        marks = marks.replace(b"[]", b"")
    return bool(marks)


def _without_escapes(data: bytes) -> bytes:
    """JSON in which each quotation mark begins or ends a string."""
    return data.replace(b"\\\\", b"").replace(b'\\"', b"")


def _opened_and_closed(data: bytes) -> bytes:
    """The brackets outside strings, all of them square; `data` has no escapes."""
    return _outside(data).translate(_SQUARE, _NO_BRACKET)


def _outside(data: bytes) -> bytes:
    """What is not inside strings; `data` has no escapes."""
    return b"".join(data.split(b'"')[::2])


def _number(text: str) -> int:
    """In the place of a number whose value does not matter: between two calls other threads run,
    whereas the parser alone would hold the interpreter for all numbers of a body.
    """
    if len(text) > NUMBER_CHARS_MAX:
        raise ValueError
    return 0


class _GivenTwice(Exception):
    """An object has a field twice; the parser cannot say where it is."""


class _Pairs(list[tuple[str, object]]):
    """An object with all its fields."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _GivenTwice
    return made


def _path_given_twice(value: object) -> str | None:
    """Path of the first field that its object has twice; None where there is none."""
    seen: set[str] = set()
    items: list[tuple[str, object]] = []
    if isinstance(value, _Pairs):
        for name, inner in value:
            if name in seen:
                return name
            seen.add(name)
            items.append((name, inner))
    elif isinstance(value, list):
        items = [(f"[{place}]", inner) for place, inner in enumerate(value)]
    for step, inner in items:
        found = _path_given_twice(inner)
        if found is not None:
            return f"{step}{found}" if found.startswith("[") else f"{step}.{found}"
    return None


def _no_constant(name: str) -> NoReturn:
    raise bad_field(None, f"{name} is not a JSON number.")


_small_decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
_large_decoder = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_number, parse_float=_number
)


def _too_deep() -> Refusal:
    return bad_field(None, f"The body nests deeper than {DEPTH_MAX} levels.")


def _malformed(reason: str) -> Refusal:
    return bad_field(None, f"The body is not valid JSON: {reason.removeprefix(_DECODER_SAYS)}.")


def named_error(message: str) -> Refusal:
    """Turn msgspec's message into a refusal that names the path as `param`."""
    found = _PATH.search(message)
    # Only objects with free keys are addressed so, and the key is not told.
    path = found["path"].removesuffix("[...]") if found else ""
    text = message[: found.start()] if found else message
    if missing := _MISSING.search(text):
        param = f"{path}.{missing['field']}" if path else missing["field"]
        return bad_field(param, f"Missing parameter: '{param}'.", "missing_required_parameter")
    if path and found and found["path"].endswith("[...]"):
        return bad_field(path, f"A value in '{path}' {in_words(text)}.")
    return bad_field(path or None, f"'{path}' {in_words(text)}." if path else f"{text}.")


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
