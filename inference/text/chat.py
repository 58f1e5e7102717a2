"""Render chat messages to one prompt text with the model's own Jinja template, sandboxed.

A template comes from a node, so it runs in Jinja's immutable sandbox, with its output and its loop
lengths bounded; `raise_exception` is offered because published templates call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, TypedDict

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

PROMPT_CHARS_MAX = 16 * 1024 * 1024


class TemplateFailed(ValueError):
    """The template refused these messages, or is not a template."""


class ChatMessage(TypedDict):
    """One message as templates read it."""

    role: str
    content: str


class ChatTemplate:
    """A compiled chat template."""

    def __init__(self, source: str, *, bos_token: str, eos_token: str) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _raise
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise TemplateFailed(f"chat_template: {error}") from error
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """The prompt up to where the assistant begins to speak; raises `TemplateFailed`."""
        try:
            text = self._template.render(
                messages=messages, add_generation_prompt=True, **self._tokens
            )
        except (TemplateError, TypeError, OverflowError) as error:
            raise TemplateFailed(f"messages: {error}") from error
        if len(text) > PROMPT_CHARS_MAX:
            raise TemplateFailed(f"messages: the prompt is over {PROMPT_CHARS_MAX} characters")
        return text


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
