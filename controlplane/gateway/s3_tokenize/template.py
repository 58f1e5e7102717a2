"""Messages to one prompt text, by the model's chat template."""

from __future__ import annotations

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.refusal import bad_field
from controlplane.kernel.spans import INDEX
from inference.text.chat import ChatMessage, TemplateFailed
from inference.text.model_text import ModelText

TEMPLATE = INDEX["s3_tokenize.template"]


def prompt_text(call: Call, ask: Ask, text: ModelText) -> str:
    """The text to encode; raises `Refusal` (400) when the template does not take the messages."""
    began = call.spans.clock()
    try:
        if ask.text is not None:
            return ask.text
        messages = [ChatMessage(role=turn.role, content=turn.content) for turn in ask.turns]
        return text.render(messages)
    except TemplateFailed as error:
        raise bad_field("messages", f"The model's chat template: {error}.") from error
    except LookupError as error:
        raise bad_field("model", f"'{ask.model}' has no chat template.") from error
    finally:
        call.spans.add(TEMPLATE, began)
