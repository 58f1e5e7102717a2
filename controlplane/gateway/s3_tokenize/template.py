"""Messages to one prompt text, by the model's chat template."""

from typing import Any

from controlplane.gateway.ask import Ask, ToolUse, Turn
from controlplane.gateway.call import Call
from controlplane.gateway.refusal import bad_field
from controlplane.kernel.spans import INDEX
from inference.text.chat import ChatMessage, TemplateFailed
from inference.text.families import HARMONY
from inference.text.model_text import ModelText

TEMPLATE = INDEX["s3_tokenize.template"]
# What templates call the switch of their model's thoughts; there is no standard.
SWITCHES = ("enable_thinking", "thinking")
EFFORT = "reasoning_effort"
# Its models know three efforts.
OF_HARMONY = {"none": "low", "minimal": "low", "xhigh": "high"}


def prompt_text(call: Call, ask: Ask, text: ModelText) -> str:
    """The text to encode; raises `Refusal` (400) when the template does not take the messages."""
    began = call.spans.clock()
    try:
        if ask.text is not None:
            return ask.text
        if ask.tools and text.chats and not text.shows_tools:
            message = f"The chat template of '{ask.model}' shows no form of calls that is read."
            raise bad_field("tools", message, "unsupported_parameter")
        thoughts = text.templates.shows_reasoning
        messages = [_message(turn, thoughts=thoughts) for turn in ask.turns]
        return text.render(messages, ask.tools, _variables(ask, text))
    except TemplateFailed as error:
        raise bad_field("messages", f"The model's chat template failed: {error}.") from error
    except LookupError as error:
        raise bad_field("model", f"'{ask.model}' has no chat template.") from error
    finally:
        call.spans.add(TEMPLATE, began)


def ignored_variables(ask: Ask, text: ModelText) -> tuple[str, ...]:
    """Paths of what was asked of the chat template and is not read by it."""
    if ask.effort is None and not ask.variables:
        return ()
    read = text.templates.variables(tools=bool(ask.tools))
    unread = [f"chat_template_kwargs.{name}" for name in ask.variables if name not in read]
    if ask.effort is not None and read.isdisjoint((EFFORT, *SWITCHES)):
        unread.insert(0, ask.effort_field)
    return tuple(unread)


def _variables(ask: Ask, text: ModelText) -> dict[str, Any]:
    if ask.effort is None:
        return ask.variables
    thinks, effort = ask.effort != "none", ask.effort
    if text.templates.form is HARMONY:
        effort = OF_HARMONY.get(effort, effort)
    return {EFFORT: effort, **dict.fromkeys(SWITCHES, thinks), **ask.variables}


def _message(turn: Turn, *, thoughts: bool) -> ChatMessage:
    message = ChatMessage(role=turn.role, content=turn.content)
    if turn.reasoning is not None and thoughts:
        message["reasoning_content"] = turn.reasoning
    if turn.calls:
        message["tool_calls"] = [_call(use) for use in turn.calls]
    if turn.call_id is not None:
        message["tool_call_id"] = turn.call_id
    return message


def _call(use: ToolUse) -> dict[str, Any]:
    """As published templates read it: arguments are a map, not JSON text."""
    function = {"name": use.name, "arguments": use.arguments}
    return {"id": use.id, "type": "function", "function": function}
