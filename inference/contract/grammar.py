"""What an output may be held to."""

import msgspec

GRAMMAR_BYTES_MAX = 64 * 1024
GRAMMAR_KINDS = ("json_object", "json_schema", "regex", "lark")
# Between the parts of JSON text: a line end and some indentation, but no blanks for a whole answer.
JSON_WHITESPACE = r"[ \n\r\t]{0,8}"


class Grammar(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What the output has to match. `kind` is one of `GRAMMAR_KINDS`, `source` its text.

    `json_object` has no source; `lark` is the dialect of llguidance.
    """

    kind: str
    source: str = ""
