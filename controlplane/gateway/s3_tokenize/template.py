"""Messages to one prompt text, by the model's chat template."""

from typing import Any

from controlplane.gateway.ask import Ask, ToolUse, Turn
from controlplane.gateway.call import Call
from controlplane.gateway.refusal import bad_field
from controlplane.kernel.spans import INDEX
from inference.text.chat import TOOL_CALL_TAG, ChatMessage, TemplateFailed
from inference.text.model_text import ModelText

TEMPLATE = INDEX["s3_tokenize.template"]


def prompt_text(call: Call, ask: Ask, text: ModelText) -> str:
    """The text to encode; raises `Refusal` (400) when the template does not take the messages."""
    began = call.spans.clock()
    try:
        if ask.text is not None:
            return ask.text
        if ask.tools and text.chats and not text.shows_tools:
            message = (
                f"The chat template of '{ask.model}' does not support tools ({TOOL_CALL_TAG})."
            )
            raise bad_field("tools", message, "unsupported_parameter")
        return text.render([_message(turn) for turn in ask.turns], ask.tools)
    except TemplateFailed as error:
        raise bad_field("messages", f"The model's chat template failed: {error}.") from error
    except LookupError as error:
        raise bad_field("model", f"'{ask.model}' has no chat template.") from error
    finally:
        call.spans.add(TEMPLATE, began)


def _message(turn: Turn) -> ChatMessage:
    message = ChatMessage(role=turn.role, content=turn.content)
    if turn.reasoning is not None:
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
