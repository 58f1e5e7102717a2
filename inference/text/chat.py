"""Render chat messages to one prompt text with the model's own Jinja template, sandboxed.

A template comes from a node, so it runs in Jinja's immutable sandbox, with its output and each loop
bounded. Loops in loops can still burn time, one reason why an administrator approves models.
Beside plain Jinja it offers what published templates use: `raise_exception`, break and continue,
and a `tojson` that writes JSON rather than HTML.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn, TypedDict

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

PROMPT_CHARS_MAX = 16 * 1024 * 1024
# What the expressions of a template can raise beside Jinja's own errors.
TEMPLATE_FAULTS = (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError)


class TemplateFailed(ValueError):
    """The template refused these messages, or is not a template."""


class ChatMessage(TypedDict):
    """One message as templates read it."""

    role: str
    content: str


class ChatTemplate:
    """A compiled chat template."""

    def __init__(self, source: str, *, bos_token: str, eos_token: str) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _raise
        environment.filters["tojson"] = _to_json
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise TemplateFailed(f"chat_template: {error}") from error
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """The prompt up to where the assistant begins to speak; raises `TemplateFailed`."""
        parts: list[str] = []
        room = PROMPT_CHARS_MAX
        try:
            for part in self._template.generate(
                messages=messages, add_generation_prompt=True, **self._tokens
            ):
                parts.append(part)
                room -= len(part)
                if room < 0:
                    raise TemplateFailed(f"messages: over {PROMPT_CHARS_MAX} characters of prompt")
        except TEMPLATE_FAULTS as error:
            raise TemplateFailed(f"messages: {error}") from error
        return "".join(parts)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
