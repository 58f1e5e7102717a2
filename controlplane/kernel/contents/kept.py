"""What was said in a request, as projects may keep it, and the terms by which it is found."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Literal
from uuid import UUID

import msgspec

from controlplane.kernel.ids import REQUEST, public_id

KEPT_BYTES_MAX = 1 << 20
"""Of a prompt, and as many characters of an answer; what is longer is cut, and marked so."""
WORDS_MAX = 1_000
DEPTH_MAX = 32
FACTS = ("model", "key", "status", "end_user")
_SAID = ("system", "instructions", "prompt", "input", "messages")
# A script without spaces between words is found by its characters.
_CHARACTER = "\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_CHARACTER}]|[^\W{_CHARACTER}]{{2,64}}")


class KeptCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as it was told; `arguments` is its JSON text."""

    id: str
    name: str
    arguments: str


class KeptChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice of an answer, as far as its client was given it."""

    index: int
    text: str
    reasoning: str = ""
    calls: tuple[KeptCall, ...] = ()
    finish: str = ""


KeptStatus = Literal["completed", "in_progress", "failed", "cancelled", "incomplete"]


class KeptContent(msgspec.Struct, frozen=True, kw_only=True):
    """What was said in one request of a project that keeps it.

    `path` is its endpoint, `body` the JSON as its client sent it, and `response`, of /v1/responses
    alone, the answer's JSON in its own shape. `truncated`: too long to be kept whole.
    """

    request: bytes
    organization: str
    project: str
    key: str
    model: str
    path: str
    started_us: int
    end_user: str = ""
    body: bytes = b""
    choices: tuple[KeptChoice, ...] = ()
    response: bytes = b""
    status: KeptStatus = "completed"
    truncated: bool = False

    @property
    def public_id(self) -> str:
        return public_id(REQUEST, UUID(bytes=self.request))

    @property
    def size(self) -> int:
        """About as many bytes as was said."""
        answers = sum(len(each.text) + len(each.reasoning) for each in self.choices)
        return len(self.body) + len(self.response) + answers


def terms_of(content: KeptContent) -> list[str]:
    """Its facts, and distinct words of answer and prompt: of many, the newest."""
    found: dict[str, None] = {}
    for text in _texts(content):
        found.update(dict.fromkeys(words_in(text)))
        if len(found) >= WORDS_MAX:
            break
    facts = {name: getattr(content, name) for name in FACTS}
    return [*facts_as_terms(facts), *list(found)[:WORDS_MAX]]


def facts_as_terms(facts: dict[str, str]) -> list[str]:
    """Terms that no word is; facts that are not told have none."""
    return [f"{name}:{value}" for name, value in facts.items() if value]


def words_in(text: str) -> list[str]:
    """Words without case, in their order."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _texts(content: KeptContent) -> Iterator[str]:
    for choice in content.choices:
        yield choice.text
        yield choice.reasoning
        yield from (f"{call.name} {call.arguments}" for call in choice.calls)
    body = body_of(content)
    yield from _leaves([body.get(name) for name in _SAID] if isinstance(body, dict) else body)


def body_of(content: KeptContent) -> Any:
    """What its client sent: JSON, or a text where it was cut."""
    try:
        return msgspec.json.decode(content.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return content.body.decode("utf-8", "replace")


def _leaves(node: Any, depth: int = 0) -> Iterator[str]:
    """Texts in a JSON value, from its end; neither names of fields nor pictures."""
    if isinstance(node, str):
        if not node.startswith("data:"):
            yield node
    elif isinstance(node, dict | list) and depth < DEPTH_MAX:
        for part in reversed(node if isinstance(node, list) else list(node.values())):
            yield from _leaves(part, depth + 1)
