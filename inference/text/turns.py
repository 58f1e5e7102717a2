"""Turns as a chat template takes them: templates differ in how they read the calls of earlier ones.

Which way a template wants is tried once, with a call of our own. To one that shows no tools these
are told by a message, with the form in which to call them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import product
from typing import Any

import msgspec

from inference.text.families import CallForm

Message = Mapping[str, Any]
# Mistral's templates take no other ids, or none that is shorter.
SHORT_ID_CHARS = 9
KEY, VALUE = "trial_key", "trial_value"
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "trial_name", "arguments": {KEY: VALUE}},
}
TRIAL: tuple[Message, ...] = (
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "found", "tool_call_id": CALL["id"]},
)
# How Python and a second quoting would write the key.
SPOILED = (f"'{KEY}'", f'\\"{KEY}')
TOLD = (
    "You have these functions, with the JSON schemas of their parameters:\n{}\n"
    "To call one, answer with nothing but:\n{}"
)


class TurnShape(msgspec.Struct, frozen=True):
    """How a template reads calls: arguments as JSON text, no content beside them, short ids."""

    texts: bool = False
    empty: bool = False
    short: bool = False

    def applied(self, message: Message) -> Message:
        made = dict(message)
        if self.short and "tool_call_id" in made:
            made["tool_call_id"] = _short(made["tool_call_id"])
        if made.get("tool_calls"):
            made["tool_calls"] = [self._call(call) for call in made["tool_calls"]]
            if self.empty and not made["content"]:
                made["content"] = None
        return made

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        function = dict(call["function"])
        if self.texts:
            function["arguments"] = _json(function["arguments"])
        made = {**call, "function": function}
        return {**made, "id": _short(call["id"])} if self.short else made


def find_shape(render: Callable[[Sequence[Message]], str | None]) -> TurnShape | None:
    """The first in which a template shows a call as it is; `render` gives None where it fails."""
    for texts, empty, short in product((False, True), repeat=3):
        shape = TurnShape(texts, empty, short)
        prompt = render([shape.applied(message) for message in TRIAL]) or ""
        shown = all(each in prompt for each in ("trial_name", KEY, VALUE))
        if shown and not any(each in prompt for each in SPOILED):
            return shape
    return None


def told(
    messages: Sequence[Message], tools: Sequence[Message], form: CallForm, *, plain: bool
) -> Sequence[Message]:
    """Messages that tell of the tools; where the template is `plain`, calls and what they gave are
    texts of the assistant and the user, who take turns.
    """
    made: list[dict[str, Any]] = []
    for message in messages:
        turn = _plain(message, form) if plain else dict(message)
        if plain and made and made[-1]["role"] == turn["role"]:
            made[-1]["content"] += "\n\n" + turn["content"]
        else:
            made.append(turn)
    if tools:
        listed = "\n".join(_json(tool["function"]) for tool in tools)
        call = form.spelled("NAME", "{...}")
        first = next((turn for turn in made if turn["role"] == "user"), made[0])
        first["content"] = TOLD.format(listed, call) + "\n\n" + first["content"]
    return made


def _plain(message: Message, form: CallForm) -> dict[str, Any]:
    calls = [call["function"] for call in message.get("tool_calls", ())]
    spelled = [form.spelled(each["name"], _json(each["arguments"])) for each in calls]
    content = "\n".join(filter(None, (message["content"], *spelled)))
    if message["role"] == "tool":
        return {"role": "user", "content": f"The function gave:\n{content}"}
    return {"role": message["role"], "content": content}


def _short(call_id: str) -> str:
    return sha256(call_id.encode()).hexdigest()[:SHORT_ID_CHARS]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
