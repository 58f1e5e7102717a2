"""What was said in a request as turns to read, whichever API it was said through."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from controlplane.kernel.contents.kept import KeptCall, KeptContent, body_of

US_PER_S = 1_000_000


@dataclass(frozen=True)
class SaidTurn:
    role: str
    text: str
    reasoning: str = ""
    calls: tuple[KeptCall, ...] = ()


@dataclass(frozen=True)
class Conversation:
    """One request with all that was said in it."""

    content: KeptContent

    @property
    def request(self) -> UUID:
        return UUID(bytes=self.content.request)

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.content.started_us / US_PER_S, UTC)

    @property
    def turns(self) -> list[SaidTurn]:
        """The prompt's, then each choice of the answer."""
        told = self.content.choices
        answers = [SaidTurn("assistant", one.text, one.reasoning, one.calls) for one in told]
        return [*prompt_turns(body_of(self.content)), *answers]

    @property
    def question(self) -> str:
        """What was said last before the answer."""
        return next((turn.text for turn in reversed([*prompt_turns(body_of(self.content))])), "")


def prompt_turns(body: Any) -> Iterator[SaidTurn]:
    """Of a request's JSON, or of the text that is left where it was cut."""
    if not isinstance(body, dict):
        body = {"prompt": body}
    for role in ("system", "instructions"):
        if body.get(role):
            yield SaidTurn("system", _text(body[role]))
    said: Any = next((body[name] for name in ("messages", "input", "prompt") if name in body), [])
    for turn in said if isinstance(said, list) else [said]:
        told = turn if isinstance(turn, dict) else {"role": "user", "content": turn}
        parts = [told.get("content") or told, told.get("tool_calls") or ""]
        yield SaidTurn(str(told.get("role") or told.get("type")), _text(parts).strip())


def _text(part: Any) -> str:
    """A text, texts of parts one below the other, and JSON of all that is no text."""
    if isinstance(part, list):
        return "\n".join(map(_text, part))
    if isinstance(part, dict):
        text = part.get("text")
        return text if isinstance(text, str) else json.dumps(part, ensure_ascii=False)
    return str(part)
