"""An `Ask` as the body of a request to an OpenAI-compatible server, where an engine takes no ids.

Model, sampling and streaming are the node's to add. Nothing in it says who asked.
"""

import msgspec

from controlplane.gateway.ask import Ask, ToolUse, Turn
from controlplane.gateway.refusal import Refusal, bad_field
from inference.contract.frames import REQUEST_JSON_BYTES_MAX


def request_json(ask: Ask) -> bytes:
    """The prompt, and what sampling does not hold; raises `Refusal` (400).

    Pictures are there without their URLs, which the node has to fill in.
    """
    if ask.truncate is not None:
        raise _not_offered(ask, "truncate_prompt_tokens")
    texts = ask.text is not None or isinstance(next(iter(ask.prompts), None), str)
    if ask.repeats_prompt and not texts:
        raise _not_offered(ask, "echo")
    if "structured_outputs" in ask.passed:
        # No standard parameter: a server that does not know it would answer as it likes.
        raise _not_offered(ask, "structured_outputs")
    body: dict[str, object] = dict(ask.passed)
    if ask.turns:
        body["messages"] = [_message(turn) for turn in ask.turns]
    else:
        body["prompt"] = ask.prompts or (ask.tokens if ask.text is None else ask.text)
    if ask.stop:
        body["stop"] = ask.stop
    data = msgspec.json.encode(body)
    if len(data) + sum(len(each.jpeg) for each in ask.pictures) > REQUEST_JSON_BYTES_MAX:
        message = f"Requests to this model must have at most {REQUEST_JSON_BYTES_MAX} bytes."
        raise bad_field(ask.prompt_field, message, "context_length_exceeded")
    return data


def _not_offered(ask: Ask, field: str) -> Refusal:
    return bad_field(field, f"'{ask.model}' does not support '{field}'.", "unsupported_parameter")


def _message(turn: Turn) -> dict[str, object]:
    content: object = _parts(turn) if turn.pictures else turn.content
    message: dict[str, object] = {"role": turn.role, "content": content}
    if turn.reasoning is not None:
        message["reasoning_content"] = turn.reasoning
    if turn.calls:
        message["tool_calls"] = [_call(use) for use in turn.calls]
    if turn.call_id is not None:
        message["tool_call_id"] = turn.call_id
    return message


def _parts(turn: Turn) -> list[dict[str, object]]:
    """Texts and pictures in their order."""
    parts, done = list[dict[str, object]](), 0
    for picture in turn.pictures:
        if picture.at > done:
            parts.append({"type": "text", "text": turn.content[done : picture.at]})
        detail = {"detail": picture.detail} if picture.detail else {}
        parts.append({"type": "image_url", "image_url": {"url": "", **detail}})
        done = picture.at
    if turn.content[done:]:
        parts.append({"type": "text", "text": turn.content[done:]})
    return parts


def _call(use: ToolUse) -> dict[str, object]:
    arguments = msgspec.json.encode(use.arguments).decode()
    function = {"name": use.name, "arguments": arguments}
    return {"id": use.id, "type": "function", "function": function}
