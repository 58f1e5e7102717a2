"""JSON to a typed request, refusing what JSON itself leaves open.

`json` reads the body first for what msgspec lets pass: duplicate fields, NaN and unbounded depth.
Every refusal names the field at fault.
"""

import json
import re
from typing import NoReturn, TypeVar

import msgspec

from controlplane.gateway.openai.wording import in_words
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
# Parameters of the API that nothing here offers yet: said so, rather than called unknown.
KNOWN_UNSUPPORTED = frozenset(
    {
        "audio", "function_call", "functions", "modalities", "parallel_tool_calls", "prediction",
        "prompt_cache_key", "reasoning_effort", "response_format", "safety_identifier", "store",
        "suffix", "tool_choice", "tools", "verbosity", "web_search_options",
    }
)  # fmt: skip
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_DECODER_SAYS = "JSON is malformed: "
_PATH = re.compile(r" - at `(?:key in )?\$\.?(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `(?P<field>[^`]*)`")
_MISSING = re.compile(r"missing required field `(?P<field>[^`]*)`")

Body = TypeVar("Body", bound=msgspec.Struct)


def parse_body(
    data: bytes, decoder: msgspec.json.Decoder[Body], *, values_max: int = VALUES_MAX
) -> Body:
    """Decode and check a request body; raises `Refusal` (400) with `param` set."""
    large = is_large(data)
    if large:
        check_counts(data, None, values_max=values_max)
    else:
        _check_json(data, _small_decoder)
    try:
        body = decoder.decode(data)
    except msgspec.ValidationError as error:
        raise _named(str(error)) from error
    except msgspec.DecodeError as error:
        raise _malformed(str(error)) from error
    except RecursionError as error:
        raise _too_deep() from error
    if large:
        # Only now: the typed decoder is quick to refuse a body that is large for no good reason.
        _check_json(data, _large_decoder)
    return body


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
        path = _encodable(_path_given_twice(json.loads(text, object_pairs_hook=_Pairs)) or "")
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
    object_pairs_hook=_unique,
    parse_constant=_no_constant,
    parse_int=_number,
    parse_float=_number,
)


def _encodable(name: str) -> str:
    """A field's name as it can be sent back: JSON may spell half of a surrogate pair."""
    return name.encode("utf-8", "replace").decode()


def _too_deep() -> Refusal:
    return bad_field(None, f"The body nests deeper than {DEPTH_MAX} levels.")


def _malformed(reason: str) -> Refusal:
    return bad_field(None, f"The body is not valid JSON: {reason.removeprefix(_DECODER_SAYS)}.")


def _named(message: str) -> Refusal:
    """Turn msgspec's message into a refusal that names the path as `param`."""
    found = _PATH.search(message)
    # Only objects with free keys are addressed so, and the key is not told.
    path = found["path"].removesuffix("[...]") if found else ""
    text = message[: found.start()] if found else message
    for pattern, verb in ((_UNKNOWN, "Unknown parameter"), (_MISSING, "Missing parameter")):
        named = pattern.search(text)
        if named:
            param = f"{path}.{named['field']}" if path else named["field"]
            if pattern is _UNKNOWN and named["field"] in KNOWN_UNSUPPORTED:
                return bad_field(param, f"'{param}' is not supported.", "unsupported_parameter")
            code = "unknown_parameter" if pattern is _UNKNOWN else "missing_required_parameter"
            return bad_field(param, f"{verb}: '{param}'.", code)
    if found and found["path"].endswith("[...]"):
        return bad_field(path, f"A value in '{path}' {in_words(text)}.")
    return bad_field(path or None, f"'{path}' {in_words(text)}." if path else f"{text}.")
