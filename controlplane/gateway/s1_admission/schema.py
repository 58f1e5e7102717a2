"""Parse the body in the client's shape and resolve the model that it names."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.refusal import bad_field, unknown_model
from controlplane.gateway.snapshot import KeyRecord, ModelRecord, Snapshot
from controlplane.kernel.rules import first_match
from controlplane.kernel.spans import INDEX

SCHEMA = INDEX["s1_admission.schema"]

Parse = Callable[[bytes], Ask]

# What a model of each task does, and where that is asked for.
_DOES = {
    "embed": ("turns text into vectors and generates none", "/v1/embeddings"),
    "generate": ("generates text and does not embed it", "a model of task embed"),
}


def check_schema(
    call: Call, body: bytes, parse: Parse, *, key: KeyRecord, snapshot: Snapshot
) -> tuple[Ask, ModelRecord, int]:
    """Return the request, its model and the output bound per choice; raises `Refusal`."""
    began = call.spans.clock()
    try:
        ask = parse(body)
        model = _model(ask, key, snapshot)
        return ask, model, _output_bound(ask, model)
    finally:
        call.spans.add(SCHEMA, began)


def _model(ask: Ask, key: KeyRecord, snapshot: Snapshot) -> ModelRecord:
    rule = first_match(snapshot.rules, ask.model, key.project)
    model = snapshot.models.get(rule.model if rule else ask.model)
    allowed = key.models is None or ask.model in key.models
    if model is None or not allowed:
        raise unknown_model(ask.model)
    task = "generate" if ask.inputs is None else "embed"
    if model.task != task:
        does, other = _DOES[model.task]
        message = f"'{ask.model}' {does}; use {other}."
        raise bad_field("model", message, "model_task_mismatch")
    if rule is not None and rule.pool != model.pool:
        return msgspec.structs.replace(model, pool=rule.pool)
    return model


def _output_bound(ask: Ask, model: ModelRecord) -> int:
    if ask.inputs is not None:
        return 0
    if ask.output_tokens is None:
        return model.output_tokens_default
    if ask.output_tokens > model.output_tokens_max:
        raise bad_field(
            ask.output_field,
            f"'{ask.output_field}' is {ask.output_tokens}; {model.name} generates at most"
            f" {model.output_tokens_max} tokens per choice.",
        )
    return ask.output_tokens
