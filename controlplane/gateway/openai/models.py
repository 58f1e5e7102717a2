"""`GET /v1/models` and `/v1/models/{id}`: what the key in hand may use."""

from __future__ import annotations

import msgspec

from controlplane.gateway.refusal import unknown_model
from controlplane.gateway.snapshot import KeyRecord, ModelRecord, Snapshot


def list_models(snapshot: Snapshot, key: KeyRecord) -> bytes:
    """All models of the key, by name."""
    allowed = [model for name, model in sorted(snapshot.models.items()) if _may_use(key, name)]
    return msgspec.json.encode({"object": "list", "data": [_model(model) for model in allowed]})


def show_model(snapshot: Snapshot, key: KeyRecord, name: str) -> bytes:
    """One model; raises `Refusal` (404) when there is none or the key may not use it."""
    model = snapshot.models.get(name)
    if model is None or not _may_use(key, name):
        raise unknown_model(name)
    return msgspec.json.encode(_model(model))


def _may_use(key: KeyRecord, name: str) -> bool:
    return key.models is None or name in key.models


def _model(model: ModelRecord) -> dict[str, object]:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created_s,
        "owned_by": model.owner,
        "context_window": model.context_window,
        "max_output_tokens": model.output_tokens_max,
    }
