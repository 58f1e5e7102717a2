"""Images for tests, as files and as what clients send, and a snapshot with a model that sees."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import msgspec
from PIL import Image

from controlplane.gateway.snapshot import Snapshot
from tests.support.fleet import MODEL

PATCH, TOKENS_MAX, PICTURES_MAX = 28, 64, 2


def image_file(
    size: tuple[int, int] = (64, 32),
    *,
    form: str = "PNG",
    mode: str = "RGB",
    frames: int = 1,
    color: str = "red",
) -> bytes:
    """A file of one colour; with several `frames` it is animated."""
    made = BytesIO()
    shots = [
        Image.new("RGB", size, each).convert(mode)
        for each in (color, *["blue", "lime"] * frames)[:frames]
    ]
    more: dict[str, Any] = {"save_all": True, "append_images": shots[1:]} if frames > 1 else {}
    shots[0].save(made, form, **more)
    return made.getvalue()


def data_url(file: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(file).decode()}"


def image_part(url: str | None = None, **more: Any) -> dict[str, Any]:
    """A part of a chat."""
    link = data_url(image_file()) if url is None else url
    return {"type": "image_url", "image_url": {"url": link, **more}}


def picture_of(url: str) -> Image.Image:
    """What a server was sent."""
    head, _, data = url.partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(BytesIO(base64.b64decode(data)))


def seeing(snapshot: Snapshot, **changes: Any) -> Snapshot:
    """The same with a model that takes a few small images."""
    fields = {
        "images_max": PICTURES_MAX, "image_tokens_max": TOKENS_MAX, "image_patch": PATCH,
        **changes,
    }  # fmt: skip
    model = msgspec.structs.replace(snapshot.models[MODEL], **fields)
    return msgspec.structs.replace(snapshot, models={MODEL: model})
